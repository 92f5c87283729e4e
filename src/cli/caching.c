/* See caching.h. An answer never depends on a cache: what cannot be used is computed. */
#include "cli/caching.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifdef GQAC_REMOTE
#include "remote/remote.h"
#endif

enum { MIB = 1 << 20, DEFAULT_BUDGET = 4096, DEFAULT_MS = 500 };

/* ---- the remote tier ----------------------------------------------------- */

#ifndef GQAC_REMOTE
static gqac_status refuse_remote(cli *c) {
    cli_usage(c, "this build of gqac has no client for a remote tier");
    cli_rule(c, "it was built without hiredis");
    return cli_hint(c, "install libhiredis-dev and build gqac again (cmake -DGQAC_REMOTE=ON)");
}
#endif

#ifdef GQAC_REMOTE
/* Without it a tier fails in silence, because no answer depends on it. */
static void warn_failed(void *arg, const char *host, const char *why) {
    gqac_diag failure = {.status = GQAC_IO};
    snprintf(failure.what, sizeof failure.what, "%s", why);
    snprintf(failure.where, sizeof failure.where, "%s", host);
    cli_warn_refusal(arg, "a call of the remote tier failed", &failure);
}

static gqac_status open_server(cli *c, const char *address, gqac_remote **server) {
    const gqac_remote_options options = {.size = sizeof options,
                                         .address = address,
                                         .ca_file = cli_value(c, "remote-cacert"),
                                         .cert_file = cli_value(c, "remote-cert"),
                                         .key_file = cli_value(c, "remote-key"),
                                         .report = warn_failed,
                                         .arg = c};
    return gqac_remote_open(&options, server, &c->diag);
}
#endif

gqac_status caching_refuse_tls(cli *c, const char *needed) {
    static const cli_flag flags[] = {CACHING_TLS_FLAGS};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (cli_given(c, flags[i].name))
            return cli_usage(c, "--%s needs %s", flags[i].name, needed);
    return GQAC_OK;
}

gqac_status caching_open_remote(cli *c, caching_remote *tier, gqac_store_options *options) {
    const char *address = cli_value(c, "prefix-remote");
    long long ms;
    GQAC_TRY(cli_number(c, "remote-timeout", 1, 3600000, DEFAULT_MS, &ms));
    if (cli_value(c, "remote-timeout") && !address)
        return cli_usage(c, "--remote-timeout needs --prefix-remote");
    if (!address)
        return caching_refuse_tls(c, "--prefix-remote");
#ifdef GQAC_REMOTE
    GQAC_TRY(open_server(c, address, &tier->server));
    options->remote = gqac_remote_functions(tier->server);
    options->remote_ms = ms;
    return GQAC_OK;
#else
    (void)tier, (void)options;
    return refuse_remote(c);
#endif
}

void caching_end_remote(caching_remote *tier, int64_t ms) {
#ifdef GQAC_REMOTE
    if (tier->server)
        remote_end_within(tier->server, 10 * ms);
#else
    (void)tier, (void)ms;
#endif
}

void caching_close_remote(caching_remote *tier) {
#ifdef GQAC_REMOTE
    gqac_remote_free(tier->server);
#endif
    tier->server = NULL;
}

bool caching_is_address(const char *text) {
    return strstr(text, "://");
}

#ifdef GQAC_REMOTE
static void print_state(const remote_state *s, bool json) {
    if (json) {
        cli_print_json(json_pack("{s:o, s:I, s:I, s:I, s:o, s:I, s:I, s:I}", "version",
                                 cli_text_json(s->version), "keys", (json_int_t)s->keys, "bytes",
                                 (json_int_t)s->memory, "budget", (json_int_t)s->most, "policy",
                                 cli_text_json(s->policy), "hits", (json_int_t)s->hits, "misses",
                                 (json_int_t)s->misses, "evicted", (json_int_t)s->evicted));
        return;
    }
    printf("version  %s\nkeys     %lld in this database\n", cli_shown(s->version).s, s->keys);
    printf("bytes    %lld of %lld (0: unlimited), when full: %s\n", s->memory, s->most,
           cli_shown(s->policy).s);
    printf("gets     %lld hits, %lld misses, since it was started\nevicted  %lld keys\n", s->hits,
           s->misses, s->evicted);
}
#endif

gqac_status caching_print_remote(cli *c, const char *address) {
#ifdef GQAC_REMOTE
    gqac_remote *server = NULL;
    remote_state state = {.keys = 0};
    GQAC_TRY(open_server(c, address, &server));
    const gqac_status status = remote_ask(server, 10 * DEFAULT_MS, &state, &c->diag);
    gqac_remote_free(server);
    if (status == GQAC_OK)
        print_state(&state, cli_json(c));
    return status;
#else
    (void)address;
    return refuse_remote(c);
#endif
}

/* ---- checks -------------------------------------------------------------- */

/* A file that does not exist, or is empty as mktemp makes it. */
static bool is_new(const char *path) {
    struct stat info;
    return stat(path, &info) != 0 ? errno == ENOENT : S_ISREG(info.st_mode) && !info.st_size;
}

/* A file that is not a snapshot may be important, so it is not replaced. */
static gqac_status check_file(cli *c, const char *path) {
    bool is = false;
    if (is_new(path))
        return GQAC_OK;
    GQAC_TRY(gqac_snapshot_file_is(path, &is, &c->diag));
    if (is)
        return GQAC_OK;
    cli_fail(c, GQAC_INVALID_INPUT, "'%s' exists and is not a snapshot", path);
    cli_rule(c, "--prompt-cache replaces its own files, and no others");
    return cli_hint(c, "another file name");
}

gqac_status caching_check(cli *c) {
    static const char *const caches[] = {"prompt-cache", "prefix-store", "prefix-remote"};
    const char *file = cli_value(c, "prompt-cache"), *folder = cli_value(c, "prefix-store");
    caching_remote tier = {.server = NULL};
    gqac_store_options options = {.size = sizeof options};
    long long budget;
    GQAC_TRY(cli_number(c, "store-budget", 1, INT64_MAX / MIB, DEFAULT_BUDGET, &budget));
    if (cli_value(c, "store-budget") && !folder)
        return cli_usage(c, "--store-budget needs --prefix-store");
    for (int i = 0; i < 3; i++)
        if (cli_value(c, caches[i]) && cli_kv_off(c))
            return cli_usage(c, "--%s needs a KV cache, and --kv off has none", caches[i]);
    GQAC_TRY(caching_open_remote(c, &tier, &options)); /* connects to nothing yet */
    caching_close_remote(&tier);
    if (!file)
        return GQAC_OK;
    GQAC_TRY(cli_check_output(c, "prompt-cache", NULL, file));
    GQAC_TRY(cli_check_writable(c, file));
    return check_file(c, file);
}

gqac_status caching_make_folder(cli *c, const char *folder) {
    return cli_make_folder(c, folder, 0700); /* prompts are private */
}

gqac_status caching_open(cli *c, const gqac_program *program, caching_remote *tier,
                         gqac_store **store) {
    const char *folder = cli_value(c, "prefix-store");
    long long budget;
    gqac_store_options options;
    gqac_store_options_init(&options);
    GQAC_TRY(caching_open_remote(c, tier, &options));
    if (!folder && !options.remote)
        return GQAC_OK;
    GQAC_TRY(cli_number(c, "store-budget", 1, INT64_MAX / MIB, DEFAULT_BUDGET, &budget));
    if (folder)
        GQAC_TRY(caching_make_folder(c, folder));
    options.folder = folder;
    options.folder_budget = folder ? budget * MIB : 0;
    return gqac_store_create(program, &options, store, &c->diag);
}

/* A whole file of another model holds another conversation, which the answer would replace. */
static gqac_status refuse_other(cli *c, const gqac_diag *why) {
    c->diag = *why;
    cli_rule(c, "the file belongs to another model, target or --math, and is not replaced");
    cli_hint(c, "another file name, or delete the file");
    return why->status;
}

gqac_status caching_load(cli *c, gqac_session *session) {
    const char *path = cli_value(c, "prompt-cache");
    const gqac_sequence *sequence = gqac_session_sequence(session);
    gqac_snapshot *snapshot = NULL;
    gqac_diag why = {0};
    if (!path || !sequence || is_new(path))
        return GQAC_OK;
    gqac_status status = gqac_snapshot_load(gqac_sequence_program(sequence), path, &snapshot, &why);
    if (status == GQAC_USAGE)
        return refuse_other(c, &why);
    if (status == GQAC_OK)
        status = gqac_session_restore(session, snapshot, &why);
    gqac_snapshot_free(snapshot);
    if (status == GQAC_IO || status == GQAC_NO_MEMORY) {
        c->diag = why;
        return status;
    }
    if (status != GQAC_OK && !*why.where)
        snprintf(why.where, sizeof why.where, "%s", path);
    if (status != GQAC_OK)
        cli_warn_refusal(c, "the prompt cache is not used", &why);
    return GQAC_OK;
}

gqac_status caching_save(cli *c, gqac_store *store, const gqac_session *session) {
    const char *path = cli_value(c, "prompt-cache");
    const gqac_sequence *sequence = gqac_session_sequence(session);
    gqac_snapshot *snapshot = NULL;
    if (!sequence || !gqac_sequence_length(sequence))
        return GQAC_OK;
    if (store)
        GQAC_TRY(gqac_store_save(store, NULL, sequence, &c->diag));
    if (!path)
        return GQAC_OK;
    GQAC_TRY(gqac_snapshot_take(sequence, &snapshot, &c->diag));
    const gqac_status status = gqac_snapshot_save(snapshot, path, &c->diag);
    gqac_snapshot_free(snapshot);
    return status;
}
