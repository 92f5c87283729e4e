/* See gqac/remote.h. A command that fails on a connection that was kept is tried once more on a new
 * one, because servers close connections that were not used for some time. */
#include "remote/remote.h"

#include <hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/diag.h"
#include "base/sized.h"
#include "remote/remote_impl.h"

enum { KEPT = 4, KEY = 5 + 64, INFO_BYTES = 1 << 16, REASONS = 8 };

struct gqac_remote {
    gqac_store_remote functions;
    address address;
    tls_context *tls; /* NULL: without */
    void (*report)(void *arg, const char *host, const char *why);
    void *arg;
    _Atomic int64_t end; /* gqac_clock_ns, see remote_end_within; INT64_MAX: none */
    pthread_mutex_t lock;
    connection *kept[KEPT]; /* open, and not in use */
    int n;
    struct reason {
        const char *command; /* that failed, and has not worked since; NULL: none */
        char why[WHY];
    } reasons[REASONS]; /* a ring: those that were reported */
    size_t n_reasons;
};

static gqac_status read_options(const gqac_remote_options *o, gqac_remote *r, gqac_diag *diag) {
    if (!o->address || !address_read(o->address, &r->address)) {
        gqac_diag_set(diag, GQAC_USAGE, "the address of the remote tier is not valid");
        gqac_diag_rule(
            diag,
            "an address is redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS");
        gqac_diag_hint(diag, "for example redis://localhost:6379");
        return GQAC_USAGE;
    }
    if (r->address.tls)
        return tls_context_open(o, &r->tls, diag);
    if (!o->ca_file && !o->cert_file && !o->key_file)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_USAGE, "certificates are given, but the address is not one of TLS");
    gqac_diag_hint(diag, "begin the address with rediss:// instead of redis://");
    return GQAC_USAGE;
}

void gqac_remote_free(gqac_remote *r) {
    if (!r)
        return;
    for (int i = 0; i < r->n; i++)
        connection_close(r->kept[i]);
    pthread_mutex_destroy(&r->lock);
    tls_context_free(r->tls);
    explicit_bzero(r->address.password, sizeof r->address.password);
    free(r);
}

/* ---- connections --------------------------------------------------------- */

static connection *take_kept(gqac_remote *r) {
    pthread_mutex_lock(&r->lock);
    connection *c = r->n ? r->kept[--r->n] : NULL;
    pthread_mutex_unlock(&r->lock);
    return c;
}

static void keep(gqac_remote *r, connection *c) {
    pthread_mutex_lock(&r->lock);
    const bool kept = r->n < KEPT;
    if (kept)
        r->kept[r->n++] = c;
    pthread_mutex_unlock(&r->lock);
    if (!kept)
        connection_close(c);
}

static int64_t clock_after(int64_t ms) {
    const int64_t now = gqac_clock_ns();
    return ms < (INT64_MAX - now) / 1000000 ? now + ms * 1000000 : INT64_MAX;
}

void remote_end_within(gqac_remote *r, int64_t ms) {
    atomic_store(&r->end, clock_after(ms));
}

/* Adds the commands of an exchange to a connection. */
typedef bool writer(connection *c, const void *arg);

/* One exchange of n replies, which must end by `until`. */
static bool try_exchange(gqac_remote *r, int64_t until, writer *write, const void *arg, size_t n,
                         reply *replies, char why[WHY]) {
    *why = '\0';
    while (until - gqac_clock_ns() >= 1000000) {
        connection *c = take_kept(r);
        const bool old = c;
        if (!c)
            c = connection_open(&r->address, r->tls, until, why);
        if (!c)
            return false;
        if (!write(c, arg))
            snprintf(why, WHY, "out of memory");
        else if (connection_exchange(c, n, replies, until, why)) {
            keep(r, c);
            return true;
        }
        connection_close(c);
        if (!old)
            return false;
    }
    return false;
}

/* One exchange of n replies; false: there are none. `why` says what failed, or is the first reply
 * that is an error; "": nothing. */
static bool exchange(gqac_remote *r, int64_t ms, writer *write, const void *arg, size_t n,
                     reply *replies, char why[WHY]) {
    const int64_t own = clock_after(ms), end = atomic_load(&r->end);
    const bool done = try_exchange(r, own < end ? own : end, write, arg, n, replies, why);
    if (!done && !*why)
        snprintf(why, WHY, "it does not answer in time");
    for (size_t i = 0; done && !*why && i < n; i++)
        if (replies[i].type == REDIS_REPLY_ERROR)
            snprintf(why, WHY, "it refuses a command: %s", replies[i].error);
    return done;
}

/* ---- functions of a store ------------------------------------------------ */

typedef struct command {
    const char *name;
    int type; /* of its replies, REDIS_REPLY_...; a string may be missing */
    const gqac_store_key *keys;
    size_t n;
    const void *data; /* a value; NULL: none */
    size_t bytes;
} command;

static void spell(const gqac_store_key *key, char text[KEY]) {
    static const char digits[] = "0123456789abcdef";
    memcpy(text, "gqac:", 5); /* NOLINT(bugprone-not-null-terminated-result): more follows */
    for (size_t i = 0; i < sizeof key->bytes; i++) {
        text[5 + 2 * i] = digits[key->bytes[i] >> 4];
        text[6 + 2 * i] = digits[key->bytes[i] & 15];
    }
}

/* The command once for each key. */
static bool write_command(connection *c, const void *arg) {
    const command *m = arg;
    char key[KEY];
    const char *const words[] = {m->name, key, m->data};
    const size_t lengths[] = {strlen(m->name), sizeof key, m->bytes};
    bool added = true;
    for (size_t i = 0; i < m->n && added; i++) {
        spell(&m->keys[i], key);
        added = connection_add(c, m->data ? 3 : 2, words, lengths);
    }
    return added;
}

/* True if the reason is not reported yet. */
static bool note_failed(gqac_remote *r, const char *command, const char *why) {
    for (size_t i = 0; i < REASONS; i++) {
        const struct reason *one = &r->reasons[i];
        if (one->command && strcmp(one->command, command) == 0 && strcmp(one->why, why) == 0)
            return false;
    }
    struct reason *next = &r->reasons[r->n_reasons++ % REASONS];
    next->command = command;
    snprintf(next->why, sizeof next->why, "%s", why);
    return true;
}

static void note_worked(gqac_remote *r, const char *command) {
    for (size_t i = 0; i < REASONS; i++)
        if (r->reasons[i].command && strcmp(r->reasons[i].command, command) == 0)
            r->reasons[i].command = NULL;
}

/* Tells the host why a command failed, once for each reason until it works again. */
static void report(gqac_remote *r, const char *command, const char *why) {
    bool tell = false;
    pthread_mutex_lock(&r->lock);
    if (*why)
        tell = note_failed(r, command, why);
    else
        note_worked(r, command);
    pthread_mutex_unlock(&r->lock);
    if (tell) /* without the lock, so that it may take its time */
        r->report(r->arg, r->address.host, why);
}

static bool is_right(const command *m, const reply *r) {
    if (r->type == REDIS_REPLY_NIL)
        return m->type == REDIS_REPLY_STRING;
    return r->type == m->type && (r->type != REDIS_REPLY_INTEGER || r->integer >= 0);
}

/* The replies to a command; false: there are none, or one is not what Redis answers. */
static bool call(gqac_remote *r, int64_t ms, const command *m, reply *replies) {
    char why[WHY];
    const bool done = exchange(r, ms, write_command, m, m->n, replies, why);
    for (size_t i = 0; done && !*why && i < m->n; i++)
        if (!is_right(m, &replies[i]))
            snprintf(why, WHY, NOT_REDIS);
    if (r->report)
        report(r, m->name, why);
    return !*why;
}

static bool find(void *arg, int64_t ms, const gqac_store_key *keys, size_t n, size_t *sizes) {
    const command m = {.name = "STRLEN", .type = REDIS_REPLY_INTEGER, .keys = keys, .n = n};
    reply *replies = calloc(n, sizeof *replies);
    const bool found = replies && call(arg, ms, &m, replies);
    for (size_t i = 0; i < n && found; i++)
        sizes[i] = (size_t)replies[i].integer;
    free(replies);
    return found;
}

static bool get(void *arg, int64_t ms, const gqac_store_key *key, void *data, size_t capacity,
                size_t *bytes) {
    const command m = {.name = "GET", .type = REDIS_REPLY_STRING, .keys = key, .n = 1};
    reply r = {.data = data, .capacity = capacity};
    *bytes = 0;
    if (!call(arg, ms, &m, &r))
        return false;
    if (r.type == REDIS_REPLY_STRING)
        *bytes = r.bytes;
    return true;
}

static bool put(void *arg, int64_t ms, const gqac_store_key *key, const void *data, size_t bytes) {
    const command m = {.name = "SET",
                       .type = REDIS_REPLY_STATUS,
                       .keys = key,
                       .n = 1,
                       .data = data,
                       .bytes = bytes};
    reply r = {.type = 0};
    return call(arg, ms, &m, &r);
}

gqac_status gqac_remote_open(const gqac_remote_options *options, gqac_remote **out,
                             gqac_diag *diag) {
    gqac_remote_options own;
    gqac_remote_options_init(&own);
    *out = NULL;
    GQAC_TRY(gqac_sized_take(&own, sizeof own, options, "gqac_remote_options", diag));
    gqac_remote *r = calloc(1, sizeof *r);
    if (!r)
        return gqac_diag_oom(diag, "a remote tier");
    r->functions = (gqac_store_remote){sizeof r->functions, find, get, put, r};
    r->report = own.report;
    r->arg = own.arg;
    pthread_mutex_init(&r->lock, NULL);
    atomic_init(&r->end, INT64_MAX);
    GQAC_RETURN_MADE(read_options(&own, r, diag), r, out, gqac_remote_free);
}

const gqac_store_remote *gqac_remote_functions(const gqac_remote *r) {
    return &r->functions;
}

/* ---- the server itself --------------------------------------------------- */

static bool write_info(connection *c, const void *arg) {
    static const char *const info[] = {"INFO"}, *const size[] = {"DBSIZE"};
    static const size_t lengths[] = {4}, lengths_of_size[] = {6};
    (void)arg;
    return connection_add(c, 1, info, lengths) && connection_add(c, 1, size, lengths_of_size);
}

/* The value of a line "name:value"; "": there is none. */
static void read_field(const char *info, const char *name, char *value, size_t size) {
    const size_t n = strlen(name);
    *value = '\0';
    for (const char *at = info; (at = strstr(at, name)); at += n)
        if ((at == info || at[-1] == '\n') && at[n] == ':') {
            const size_t length = strcspn(at + n + 1, "\r\n");
            snprintf(value, size, "%.*s", (int)(length < size ? length : size - 1), at + n + 1);
            return;
        }
}

static long long read_count(const char *info, const char *name) {
    char value[32];
    read_field(info, name, value, sizeof value);
    return strtoll(value, NULL, 10);
}

gqac_status remote_ask(gqac_remote *r, int64_t ms, remote_state *state, gqac_diag *diag) {
    char *info = calloc(1, INFO_BYTES + 1), why[WHY];
    reply replies[2] = {{.data = info, .capacity = info ? INFO_BYTES : 0}};
    if (!info)
        return gqac_diag_oom(diag, "a remote tier");
    const bool answered = exchange(r, ms, write_info, NULL, 2, replies, why);
    if (!answered || replies[0].type != REDIS_REPLY_STRING || replies[0].bytes > INFO_BYTES ||
        replies[1].type != REDIS_REPLY_INTEGER) {
        free(info);
        GQAC_FAIL(diag, GQAC_IO, "the server %s, port %s, gave no answer that can be used: %s",
                  r->address.host, r->address.port, *why ? why : NOT_REDIS);
    }
    read_field(info, "redis_version", state->version, sizeof state->version);
    read_field(info, "maxmemory_policy", state->policy, sizeof state->policy);
    state->keys = replies[1].integer;
    state->memory = read_count(info, "used_memory");
    state->most = read_count(info, "maxmemory");
    state->hits = read_count(info, "keyspace_hits");
    state->misses = read_count(info, "keyspace_misses");
    state->evicted = read_count(info, "evicted_keys");
    free(info);
    return GQAC_OK;
}
