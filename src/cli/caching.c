/* See caching.h. An answer never depends on a cache: what cannot be used is computed. */
#include "cli/caching.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MIB = 1 << 20, DEFAULT_BUDGET = 4096 };

/* A file that does not exist, or is empty as mktemp makes it. */
static bool is_new(const char *path) {
    struct stat info;
    return stat(path, &info) != 0 ? errno == ENOENT : S_ISREG(info.st_mode) && !info.st_size;
}

/* A file that is not a snapshot may be important to somebody: it is not replaced. */
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
    const char *file = cli_value(c, "prompt-cache"), *folder = cli_value(c, "prefix-store");
    long long budget;
    GQAC_TRY(cli_number(c, "store-budget", 1, INT64_MAX / MIB, DEFAULT_BUDGET, &budget));
    if (cli_value(c, "store-budget") && !folder)
        return cli_usage(c, "--store-budget goes with --prefix-store");
    if ((file || folder) && cli_kv_off(c))
        return cli_usage(c, "--%s needs a KV cache, and --kv off has none",
                         file ? "prompt-cache" : "prefix-store");
    if (!file)
        return GQAC_OK;
    GQAC_TRY(cli_check_output(c, "prompt-cache", NULL, file));
    GQAC_TRY(cli_check_writable(c, file));
    return check_file(c, file);
}

gqac_status caching_make_folder(cli *c, const char *folder) {
    return cli_make_folder(c, folder, 0700); /* prompts are nobody else's business */
}

gqac_status caching_open(cli *c, const gqac_program *program, gqac_store **store) {
    const char *folder = cli_value(c, "prefix-store");
    long long budget;
    gqac_store_options options;
    if (!folder)
        return GQAC_OK;
    GQAC_TRY(cli_number(c, "store-budget", 1, INT64_MAX / MIB, DEFAULT_BUDGET, &budget));
    GQAC_TRY(caching_make_folder(c, folder));
    gqac_store_options_init(&options);
    options.folder = folder;
    options.folder_budget = budget * MIB;
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
