/* The remote tier of a store: what other machines computed.
 *
 * It is asked after memory and folder, for the full blocks that they lack, and gets the full blocks
 * of each sequence that is saved. It may be down, slow or hostile: a call that fails is counted,
 * and then the tier is left alone for a while; a value is used only if it passes entry_check. The
 * lock of the store is never held while the tier is called. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/sized.h"
#include "runtime/baked.h"
#include "runtime/saved.h"
#include "store/entry.h"

enum {
    DEFAULT_MS = 500,
    MOST_BLOCKS = 1 << 14, /* of one search: a million tokens */
    DAMAGED = 64,          /* keys that are remembered */
    MOST_BYTES = 512 << 20 /* of a value: the maximum of Redis */
};
static const int64_t ms_ns = 1000000, least_pause = 1000000000, most_pause = 32000000000;

struct store_remote {
    gqac_store_remote functions;
    int64_t ms;
    unsigned char model[32];
    /* under the lock of the store */
    struct pause {
        int64_t until, length;       /* clock, and length of the latest one; 0: none */
    } pauses[2];                     /* of searches, of saves */
    gqac_store_key damaged[DAMAGED]; /* a ring: saves replace the values of these keys */
    size_t n_damaged;
};

/* A search, or a save. */
typedef struct operation {
    gqac_store *store;
    store_remote *remote;
    const int64_t *ids;
    entry_form form;
    gqac_store_key *keys; /* of all blocks of the text */
    size_t *sizes;        /* of the values of all blocks */
    int64_t until;        /* clock: the end of the time */
    bool saves, failed;
} operation;

gqac_status store_remote_open(gqac_store *store, const gqac_store_remote *functions, int64_t ms,
                              store_remote **remote, gqac_diag *diag) {
    gqac_store_remote own = {0};
    GQAC_TRY(gqac_sized_take(&own, sizeof own, functions, "gqac_store_remote", diag));
    if (!own.find || !own.get || !own.put)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "a remote tier needs the functions find, get and put, but one is NULL");
    store_remote *r = gqac_calloc(1, sizeof *r);
    if (!r)
        return gqac_diag_oom(diag, "a prefix store");
    r->functions = own;
    r->ms = ms ? ms : DEFAULT_MS;
    GQAC_RETURN_MADE(saved_fingerprint(store->program, r->model, diag), r, remote,
                     store_remote_close);
}

void store_remote_close(store_remote *remote) {
    gqac_free(remote);
}

int64_t store_remote_limit(const store_remote *remote) {
    return remote->ms < INT64_MAX / ms_ns ? remote->ms * ms_ns : INT64_MAX;
}

/* ---- calls --------------------------------------------------------------- */

static int64_t ms_left(const operation *o) {
    return (o->until - gqac_clock_ns()) / ms_ns;
}

static void renew_time(operation *o) {
    const int64_t now = gqac_clock_ns(), ms = o->remote->ms;
    o->until = ms < (INT64_MAX - now) / ms_ns ? now + ms * ms_ns : INT64_MAX;
}

/* Counts a call that failed, after which the tier is left alone. */
static bool call_ended(operation *o, bool answered) {
    struct pause *p = &o->remote->pauses[o->saves];
    if (answered)
        return true;
    o->failed = true;
    pthread_mutex_lock(&o->store->lock);
    o->store->counts.remote_errors++;
    const int64_t now = gqac_clock_ns();
    if (now >= p->until) { /* another operation has not failed at the same time */
        p->length = !p->length ? least_pause : p->length < most_pause ? 2 * p->length : most_pause;
        p->until = now + p->length;
    }
    const long long seconds = p->length / least_pause;
    pthread_mutex_unlock(&o->store->lock);
    gqac_log_line(&o->store->program->log, GQAC_LOG_WARNING,
                  "the remote tier of the prefix store does not answer; next try in %lld s",
                  seconds);
    return false;
}

/* True during the pause after a failed call. */
static bool is_paused(const operation *o) {
    pthread_mutex_lock(&o->store->lock);
    const bool paused = gqac_clock_ns() < o->remote->pauses[o->saves].until;
    pthread_mutex_unlock(&o->store->lock);
    return paused;
}

/* Sets the sizes of the values of some blocks. A search whose answer leaves no time to read a value
 * has failed. */
static bool find_sizes(operation *o, size_t first, size_t end) {
    const gqac_store_remote *f = &o->remote->functions;
    const int64_t ms = ms_left(o);
    const bool answered =
        ms > 0 && f->find(f->arg, ms, o->keys + first, end - first, o->sizes + first);
    return call_ended(o, answered && (o->saves || ms_left(o) > 0));
}

static void count_damaged(operation *o, size_t block) {
    store_remote *r = o->remote;
    pthread_mutex_lock(&o->store->lock);
    o->store->counts.remote_damaged++;
    r->damaged[r->n_damaged++ % DAMAGED] = o->keys[block];
    pthread_mutex_unlock(&o->store->lock);
    gqac_log_line(&o->store->program->log, GQAC_LOG_WARNING,
                  "a value of the remote tier of the prefix store is not used: it is damaged");
}

/* True if the value that the tier has is known as damaged; forgets this, because the caller
 * replaces it. */
static bool take_damaged(operation *o, size_t block) {
    store_remote *r = o->remote;
    bool damaged = false;
    pthread_mutex_lock(&o->store->lock);
    for (size_t i = 0; i < DAMAGED; i++)
        if (!memcmp(&r->damaged[i], &o->keys[block], sizeof *r->damaged)) {
            memset(&r->damaged[i], 0, sizeof *r->damaged);
            damaged = true;
        }
    pthread_mutex_unlock(&o->store->lock);
    return damaged;
}

/* Gets the value of a block, of the size that was found. False: it is gone, or is not what it must
 * be. */
static bool get_value(operation *o, size_t block, unsigned char *data) {
    const gqac_store_remote *f = &o->remote->functions;
    const int64_t ms = ms_left(o);
    const size_t size = o->sizes[block];
    size_t bytes = 0;
    if (!call_ended(o, ms > 0 && f->get(f->arg, ms, &o->keys[block], data, size, &bytes)) || !bytes)
        return false;
    pthread_mutex_lock(&o->store->lock);
    o->store->counts.remote_read_bytes += bytes <= size ? (int64_t)bytes : 0;
    pthread_mutex_unlock(&o->store->lock);
    if (bytes == size && entry_check(&o->form, &o->keys[block], o->ids, block, data, bytes))
        return true;
    count_damaged(o, block);
    return false;
}

static bool put_value(operation *o, size_t block, unsigned char *data, size_t bytes) {
    const gqac_store_remote *f = &o->remote->functions;
    entry_seal(&o->form, &o->keys[block], o->ids, block, data, bytes);
    renew_time(o);
    if (!call_ended(o, f->put(f->arg, o->remote->ms, &o->keys[block], data, bytes)))
        return false;
    pthread_mutex_lock(&o->store->lock);
    o->store->counts.remote_saved++;
    o->store->counts.remote_written_bytes += (int64_t)bytes;
    pthread_mutex_unlock(&o->store->lock);
    return true;
}

/* ---- operations ---------------------------------------------------------- */

/* Prepares an operation on the first n blocks of a text; false: there is no memory, or the tier is
 * left alone. */
static bool begin(operation *o, const gqac_sequence *of_kind, const char *tenant, int side,
                  size_t n) {
    o->remote = o->store->remote;
    if (is_paused(o) || !entry_form_of(of_kind, o->remote->model, tenant, side, &o->form))
        return false;
    o->keys = gqac_calloc(n, sizeof *o->keys);
    o->sizes = gqac_calloc(n, sizeof *o->sizes);
    if (!o->keys || !o->sizes)
        return false;
    entry_keys(&o->form, o->ids, n, o->keys);
    renew_time(o);
    return true;
}

static void end(operation *o) {
    if (o->keys && o->sizes && !o->failed) {
        pthread_mutex_lock(&o->store->lock);
        o->remote->pauses[o->saves].length = 0;
        pthread_mutex_unlock(&o->store->lock);
    }
    gqac_free(o->keys);
    gqac_free(o->sizes);
}

/* ---- search -------------------------------------------------------------- */

/* Where a search goes on and what it finds. */
typedef struct search {
    operation o;
    store_space *space;
    store_node *root;
    const gqac_sequence *empty; /* of the kind */
    int64_t length;             /* of the text */
    int64_t n;                  /* ids that can be reused */
    size_t first, end;          /* blocks that are looked for */
} search;

/* Leading tokens that a sequence can have of the baked prefix; 0 if the ids that can be reused are
 * on the other side of a LongRoPE threshold than the whole text. */
static int64_t baked_tokens(const search *s, const gqac_sequence *q) {
    const int64_t threshold = q->program->baked_threshold;
    const bool same_side = (s->n + 1 > threshold) == (s->length > threshold);
    return same_side ? baked_match(q, s->o.ids, s->n + 1) : 0;
}

/* The number of leading tokens that are there already. */
static int64_t known(const search *s) {
    const int64_t baked = baked_tokens(s, s->empty);
    pthread_mutex_lock(&s->space->store->lock);
    const int64_t length = store_find(s->root, s->o.ids, s->n, s->n, false).length;
    pthread_mutex_unlock(&s->space->store->lock);
    return baked > length ? baked : length;
}

/* Fills an empty sequence with the blocks before the first one that is looked for. */
static bool share_known(const search *s, gqac_sequence *q) {
    const int64_t *ids = s->o.ids, length = (int64_t)s->first * GQAC_KV_BLOCK;
    bool shared = !length;
    if (length && baked_tokens(s, q) >= length)
        return baked_share(q, ids, length, NULL) == GQAC_OK;
    pthread_mutex_lock(&s->space->store->lock);
    const store_match found = store_find(s->root, ids, length, length, false);
    if (length && found.node && found.length == length)
        shared =
            sequence_share(q, found.node->rows, length, ids, found.node->pinned, NULL) == GQAC_OK;
    pthread_mutex_unlock(&s->space->store->lock);
    return shared;
}

/* Adds the first `length` tokens of the text, whose rows q has, to the index. */
static bool add(const search *s, gqac_sequence *q, int64_t length) {
    if (sequence_reserve_ids(q, length, NULL) != GQAC_OK)
        return false;
    memcpy(q->ids, s->o.ids, (size_t)length * sizeof *q->ids);
    q->pinned = s->length;
    q->imported = true;
    pthread_mutex_lock(&s->space->store->lock);
    const gqac_status status = store_add_rows(s->space, q, length, NULL);
    pthread_mutex_unlock(&s->space->store->lock);
    return status == GQAC_OK;
}

/* Gets the rows of one block after another. */
static size_t get_blocks(search *s, gqac_sequence *q, size_t end, unsigned char *data) {
    size_t at = s->first;
    while (at < end && get_value(&s->o, at, data) &&
           kv_sequence_reserve(q->kv, (int64_t)(at + 1) * GQAC_KV_BLOCK, NULL) == GQAC_OK &&
           entry_put_rows(q, at, data + ENTRY_BODY, NULL) == GQAC_OK)
        kv_sequence_publish(q->kv, (int64_t)++at * GQAC_KV_BLOCK);
    return at;
}

/* The end of the blocks that the tier has without a gap, and that a store could keep. */
static size_t end_of_run(search *s) {
    const gqac_store_options *x = &s->space->store->options;
    const size_t bytes = ENTRY_BODY + s->o.form.rows;
    size_t at = s->first;
    while (at < s->end && s->o.sizes[at] == bytes &&
           (!x->budget || (at + 1) * s->o.form.rows <= (size_t)x->budget) &&
           (!x->tenant_budget || (at + 1) * s->o.form.rows <= (size_t)x->tenant_budget))
        at++;
    if (at < s->end && s->o.sizes[at] && s->o.sizes[at] != bytes)
        count_damaged(&s->o, at);
    return at;
}

static bool find_blocks(search *s) {
    const gqac_sequence_options options = {.size = sizeof options,
                                           .kv = gqac_sequence_kind(s->empty)};
    const size_t end = end_of_run(s);
    gqac_sequence *q = NULL;
    bool found = false;
    if (end == s->first)
        return false;
    unsigned char *data = gqac_alloc(ENTRY_BODY + s->o.form.rows);
    if (data && gqac_sequence_create(s->o.form.program, &options, &q, NULL) == GQAC_OK &&
        share_known(s, q)) {
        const size_t got = get_blocks(s, q, end, data);
        found = got > s->first && add(s, q, (int64_t)got * GQAC_KV_BLOCK);
    }
    gqac_sequence_free(q);
    gqac_free(data);
    return found;
}

/* True if it is a sequence of the first `length` tokens of the text, of the right kind. */
static bool is_prefix(const search *s, const gqac_sequence *q, int64_t length) {
    return gqac_sequence_length(q) == length && !q->given && !q->missing &&
           !strcmp(gqac_sequence_kind(q), gqac_sequence_kind(s->empty)) &&
           gqac_common_ids(q->ids, s->o.ids, length) == length;
}

static bool load_whole(search *s, size_t block, unsigned char *data) {
    const int64_t length = (int64_t)(block + 1) * GQAC_KV_BLOCK;
    gqac_sequence *q = NULL;
    if (!get_value(&s->o, block, data))
        return false;
    const gqac_status status = gqac_sequence_load(s->o.form.program, NULL, data + ENTRY_BODY,
                                                  s->o.sizes[block] - ENTRY_BODY, &q, NULL);
    const bool whole = status == GQAC_OK && is_prefix(s, q, length);
    if (!whole && status != GQAC_NO_MEMORY && status != GQAC_CAPACITY)
        count_damaged(&s->o, block);
    const bool added = whole && add(s, q, length);
    gqac_sequence_free(q);
    return added;
}

/* The longest saved sequence. */
static bool find_whole(search *s) {
    const gqac_store_options *x = &s->space->store->options;
    bool found = false;
    for (size_t at = s->end; at-- > s->first && !found && !s->o.failed && ms_left(&s->o) > 0;) {
        const size_t size = s->o.sizes[at];
        size_t most = 0;
        if (!size || (x->budget && (int64_t)size > x->budget) ||
            (x->tenant_budget && (int64_t)size > x->tenant_budget))
            continue;
        if (size <= ENTRY_BODY ||
            !saved_most(s->o.form.program, (int64_t)(at + 1) * GQAC_KV_BLOCK, &most) ||
            size - ENTRY_BODY > most) {
            count_damaged(&s->o, at);
            continue;
        }
        unsigned char *data = gqac_alloc(size);
        found = data && load_whole(s, at, data);
        gqac_free(data);
    }
    return found;
}

void store_remote_find(store_space *space, store_node *root, const gqac_sequence *empty,
                       int64_t length, const int64_t *ids, int64_t n) {
    gqac_store *store = space->store;
    search s = {.o = {.store = store, .ids = ids},
                .space = space,
                .root = root,
                .empty = empty,
                .length = length,
                .n = n,
                .end = (size_t)(n / GQAC_KV_BLOCK)};
    s.end = s.end < MOST_BLOCKS ? s.end : MOST_BLOCKS;
    s.first = (size_t)(known(&s) / GQAC_KV_BLOCK);
    if (s.first >= s.end)
        return;
    bool found = false, answered = false;
    if (begin(&s.o, empty, space->tenant->name, root == &space->roots[1], s.end))
        answered = find_sizes(&s.o, s.first, s.end);
    if (answered)
        found = s.o.form.whole ? find_whole(&s) : find_blocks(&s);
    pthread_mutex_lock(&store->lock);
    store->counts.remote_hits += found;
    store->counts.remote_misses += answered && !found;
    pthread_mutex_unlock(&store->lock);
    end(&s.o);
}

/* ---- saving -------------------------------------------------------------- */

static void save_blocks(operation *o, const gqac_sequence *q, size_t n) {
    const size_t bytes = ENTRY_BODY + o->form.rows;
    unsigned char *data = gqac_alloc(bytes);
    for (size_t i = 0; data && i < n && !o->failed; i++)
        if ((take_damaged(o, i) || o->sizes[i] != bytes) &&
            entry_take_rows(q, i, data + ENTRY_BODY, NULL) == GQAC_OK)
            put_value(o, i, data, bytes);
    gqac_free(data);
}

/* Saves the first `length` tokens. */
static void save_prefix(operation *o, const gqac_sequence *q, int64_t length) {
    gqac_sequence *prefix = NULL;
    unsigned char *data = NULL;
    size_t bytes = 0;
    gqac_status status = sequence_fork_unwatched(q, &prefix, NULL);
    if (status == GQAC_OK)
        status = gqac_sequence_rewind(prefix, length, NULL);
    if (status == GQAC_OK && gqac_add_size(gqac_sequence_save_bytes(prefix), ENTRY_BODY, &bytes) &&
        bytes <= MOST_BYTES)
        data = gqac_alloc(bytes);
    if (data && gqac_sequence_save(prefix, data + ENTRY_BODY, bytes - ENTRY_BODY, NULL) == GQAC_OK)
        put_value(o, (size_t)(length / GQAC_KV_BLOCK) - 1, data, bytes);
    gqac_free(data);
    gqac_sequence_free(prefix);
}

/* Saves a prefix for each end of a block to which the sequence can be rewound. The shortest is
 * first: more texts begin with it, and a longer one may take too much time. */
static void save_whole(operation *o, const gqac_sequence *q, size_t n) {
    for (size_t block = 0; block < n && !o->failed; block++) {
        const int64_t length = (int64_t)(block + 1) * GQAC_KV_BLOCK;
        if (kv_sequence_reach(q->kv, length) == length &&
            (take_damaged(o, block) || !o->sizes[block]))
            save_prefix(o, q, length);
    }
}

void store_remote_save(gqac_store *store, const char *tenant, const gqac_sequence *q) {
    const int64_t threshold = store->threshold;
    const size_t all = (size_t)(kv_sequence_length(q->kv) / GQAC_KV_BLOCK);
    const size_t n = all < MOST_BLOCKS ? all : MOST_BLOCKS;
    operation o = {.store = store, .ids = q->ids, .saves = true};
    if (!n)
        return;
    if (begin(&o, q, tenant, threshold && q->pinned > threshold, n) && find_sizes(&o, 0, n))
        (o.form.whole ? save_whole : save_blocks)(&o, q, n);
    end(&o);
}
