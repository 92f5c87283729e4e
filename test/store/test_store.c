/* The prefix store compared with plain lists of tokens: what is reused, what is computed, bytes and
 * blocks; and every result has the bits of a sequence that computed all tokens itself. */
#include "base/alloc.h"
#include "base/table.h"
#include "runtime/program.h"
#include "runtime/rig.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LETTERS = 3, LENGTH = 200, LIVE = 12, THREADS = 4 };

/* With a thread sanitizer, which is many times slower, tests run a fraction of the steps. */
#ifdef __SANITIZE_THREAD__
enum { SLOWER = 8 };
#else
enum { SLOWER = 1 };
#endif

static gqac_diag diag;

static gqac_sequence *open_sequence(gqac_store *store, const char *tenant, const int64_t *ids,
                                    int64_t n, int64_t *reused) {
    gqac_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, tenant, ids, n, NULL, &s, reused, &diag), GQAC_OK);
    return s;
}

static void feed(gqac_context *context, gqac_sequence *s, const int64_t *ids, int64_t n) {
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, s, ids, n, 1, &diag), GQAC_OK);
}

/* ---- one thing at a time ------------------------------------------------- */

/* Every hit length around block boundaries, before different tokens; exactly the rest is computed,
 * with the bits of a cold run. */
static void every_length(const char *model, bool states) {
    static const int64_t hits[] = {0, 1, 2, 63, 64, 65, 127, 128, 129, 149};
    gqac_program *p = rig_program(model, "cpu");
    gqac_context *context = rig_context(p);
    int64_t ids[150], other[180], reused = -1;
    gqac_sequence *cold = rig_sequence(p, 0);
    rig_ids(ids, 150, 1);
    feed(context, cold, ids, 150);
    const uint64_t expected = rig_logits(context);
    gqac_sequence_free(cold);
    for (size_t i = 0; i < sizeof hits / sizeof *hits; i++) {
        gqac_store *store = rig_store(p, 0, 0);
        rig_ids(other, 180, 2);
        memcpy(other, ids, (size_t)hits[i] * sizeof *ids);
        other[hits[i]] = (ids[hits[i]] + 1) % 250;
        const int64_t n = states ? hits[i] : 180; /* there is a state only at the end */
        if (n) {
            gqac_sequence *donor = open_sequence(store, NULL, other, n, &reused);
            CU_ASSERT_EQUAL(reused, 0);
            feed(context, donor, other, n);
            gqac_sequence_free(donor);
        }
        CU_ASSERT_EQUAL(gqac_store_match(store, NULL, NULL, ids, 150), hits[i]);
        for (int again = 0; again < 2; again++) {
            gqac_sequence *s = open_sequence(store, NULL, ids, 150, &reused);
            const int64_t most = again && !states ? 149 : hits[i];
            CU_ASSERT(again && states ? reused >= hits[i] : reused == most);
            CU_ASSERT_EQUAL(gqac_sequence_length(s), reused);
            feed(context, s, ids + reused, 150 - reused);
            CU_ASSERT_EQUAL(rig_logits(context), expected);
            CU_ASSERT_EQUAL(gqac_sequence_computed(s), 150 - reused);
            gqac_sequence_free(s);
        }
        gqac_store_evict(store, 0);
        CU_ASSERT(rig_counts(store).bytes == 0 && rig_counts(store).blocks == 0);
        gqac_store_free(store);
        CU_ASSERT(!kv_pool_blocks_in_use(p->pool) && !kv_pool_states_in_use(p->pool));
    }
    gqac_context_free(context);
    gqac_program_free(p);
}

static void lengths(void) {
    every_length("models/tiny-gqa/model.onnx", false);
    every_length("test/models/lfm2/model.onnx", false);
    every_length("test/models/qwen3.5/model.onnx", true);
}

/* Full blocks are found while their sequence still decodes. */
static void growing(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_store *store = rig_store(p, 0, 0);
    int64_t ids[200], reused = 0;
    rig_ids(ids, 200, 1);
    gqac_sequence *s = open_sequence(store, NULL, ids, 200, &reused);
    feed(context, s, ids, 50);
    CU_ASSERT_EQUAL(gqac_store_match(store, NULL, NULL, ids, 200), 50);
    for (int64_t i = 50; i < 200; i++) {
        feed(context, s, ids + i, 1);
        const int64_t whole = (i + 1) / 64 * 64;
        CU_ASSERT_EQUAL(gqac_store_match(store, NULL, NULL, ids, 200), whole > 50 ? whole : 50);
    }
    CU_ASSERT_EQUAL(rig_counts(store).prefixes, 1);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), 4);
    gqac_sequence_free(s);
    CU_ASSERT_EQUAL(gqac_store_match(store, NULL, NULL, ids, 200), 200);
    const gqac_store_statistics x = rig_counts(store);
    CU_ASSERT(x.computed_tokens == 200 && x.misses == 1 && x.hits == 0 && x.blocks == 4);
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* A difference in any field of the key prevents a hit; a failed step adds nothing. */
static void keys(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_store *store = rig_store(p, 0, 0);
    static const char *const others[] = {"", "b", "aa", "A", "a ", "a\x01"};
    int64_t ids[100], reused = 0;
    rig_ids(ids, 100, 1);
    gqac_sequence *s = open_sequence(store, "a", ids, 100, &reused);
    feed(context, s, ids, 100);
    const int64_t wrong[] = {5, -1};
    CU_ASSERT_EQUAL(gqac_sequence_append(context, s, wrong, 2, 1, &diag), GQAC_OUT_OF_RANGE);
    gqac_sequence_free(s);
    CU_ASSERT_EQUAL(gqac_store_match(store, "a", " basic", ids, 100), 0); /* by its name */
    CU_ASSERT_EQUAL(gqac_store_match(store, "a", "contiguous", ids, 100), 100);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        s = open_sequence(store, others[i], ids, 100, &reused);
        CU_ASSERT_EQUAL(reused, 0);
        gqac_sequence_free(s);
    }
    s = open_sequence(store, "a", ids, 100, &reused);
    CU_ASSERT_EQUAL(reused, 99);
    gqac_sequence_free(s);
    for (int64_t i = 0; i < 100; i++) { /* one id at each position */
        ids[i] ^= 1;
        CU_ASSERT_EQUAL(gqac_store_match(store, "a", NULL, ids, 100), i);
        ids[i] ^= 1;
    }
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* Computes a prompt of n ids through the store. */
static int64_t visit(gqac_store *store, gqac_context *context, const char *tenant, int seed,
                     int64_t n) {
    int64_t ids[LENGTH], reused = 0;
    rig_ids(ids, n, seed);
    gqac_sequence *s = open_sequence(store, tenant, ids, n, &reused);
    feed(context, s, ids + reused, n - reused);
    gqac_sequence_free(s);
    return reused;
}

/* The least recently used entry is evicted first, pinned prefixes stay, and no tenant exceeds its
 * quota. */
static void eviction(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_store *store = rig_store(p, 0, 0);
    int64_t ids[LENGTH];
    for (int seed = 0; seed < 4; seed++)
        CU_ASSERT_EQUAL(visit(store, context, "a", seed, 100), 0);
    CU_ASSERT_EQUAL(visit(store, context, "a", 0, 100), 99);
    const int64_t all = rig_counts(store).bytes;
    gqac_store_evict(store, all - 1);
    rig_ids(ids, 100, 1);
    CU_ASSERT_EQUAL(gqac_store_match(store, "a", NULL, ids, 100), 0);
    rig_ids(ids, 100, 2);
    CU_ASSERT_EQUAL(gqac_store_pin(store, "a", NULL, ids, 80, true, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_store_pin(store, "b", NULL, ids, 80, true, &diag), GQAC_USAGE);
    gqac_store_evict(store, 0);
    CU_ASSERT_EQUAL(gqac_store_match(store, "a", NULL, ids, 100), 80);
    CU_ASSERT_EQUAL(rig_counts(store).prefixes, 1);
    CU_ASSERT_EQUAL(gqac_store_pin(store, "a", NULL, ids, 80, false, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_store_pin(store, "a", NULL, ids, 80, false, &diag), GQAC_USAGE);
    gqac_store_evict(store, 0);
    CU_ASSERT(rig_counts(store).bytes == 0 && rig_counts(store).evictions == 5);
    gqac_store_free(store);

    store = rig_store(p, all * 3 / 2, all / 2 + 1);
    for (int seed = 10; seed < 14; seed++)
        visit(store, context, "victim", seed, 40); /* one block each */
    for (int seed = 20; seed < 60; seed++)
        visit(store, context, "flood", seed, 150);
    for (int seed = 10; seed < 14; seed++)
        CU_ASSERT_EQUAL(visit(store, context, "victim", seed, 40), 39);
    CU_ASSERT(rig_counts(store).bytes <= all * 3 / 2 && rig_counts(store).evictions >= 30);
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* A stream of requests with a common beginning shows which prefix is worth pinning. */
static void shared_prefixes(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_store *store = rig_store(p, 0, 0);
    int64_t ids[LENGTH], reused = 0;
    gqac_store_prefix found[4];
    for (int i = 0; i < 6; i++) {
        rig_ids(ids, 100, 1);
        ids[90] = i;
        gqac_sequence *s = open_sequence(store, "a", ids, 100, &reused);
        CU_ASSERT_EQUAL(reused, i ? 90 : 0);
        feed(context, s, ids + reused, 100 - reused);
        gqac_sequence_free(s);
    }
    CU_ASSERT_EQUAL_FATAL(gqac_store_prefixes(store, 4, found), 1);
    CU_ASSERT(found[0].length == 90 && found[0].uses == 4);
    CU_ASSERT_STRING_EQUAL(found[0].tenant, "a");
    CU_ASSERT_EQUAL(gqac_store_prefixes(store, 0, NULL), 0);
    const gqac_store_statistics x = rig_counts(store);
    CU_ASSERT(x.hits == 5 && x.misses == 1 && x.reused_tokens == 450 && x.computed_tokens == 150);
    CU_ASSERT_EQUAL(x.blocks, 2 + 5); /* the second block once for each ending */
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* ---- at random ----------------------------------------------------------- */

typedef struct list {
    int64_t n, ids[LENGTH];
} list;

/* The oracle: committed lists, and the bits of lists computed alone. */
typedef struct oracle {
    const gqac_program *program;
    gqac_context *context;
    gqac_store *store;
    uint64_t random;
    bool exact;         /* nothing is evicted, and every length can be reached */
    list *committed[2]; /* indexed by tenant */
    size_t n[2], capacity[2];
    gqac_table bits; /* hash of a list: hash of its logits */
    int64_t computed, hits, opened;
} oracle;

static const char *const tenants[] = {"x", "y"};

typedef struct live {
    gqac_sequence *sequence;
    gqac_snapshot *snapshot; /* instead of a sequence */
    int tenant;
    bool watched;
    list tokens;
    int64_t computed;
} live;

static int64_t draw(oracle *o, int64_t n) {
    o->random = o->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((o->random >> 33) % (uint64_t)n);
}

static int64_t common(const list *a, const list *b) {
    int64_t i = 0;
    while (i < a->n && i < b->n && a->ids[i] == b->ids[i])
        i++;
    return i;
}

static void commit(oracle *o, int tenant, const list *l) {
    CU_ASSERT_FATAL(
        gqac_reserve(&o->committed[tenant], o->n[tenant] + 1, &o->capacity[tenant], sizeof(list)));
    o->committed[tenant][o->n[tenant]++] = *l;
}

static int64_t longest(const oracle *o, int tenant, const list *l) {
    int64_t most = 0;
    for (size_t i = 0; i < o->n[tenant]; i++) {
        const int64_t length = common(&o->committed[tenant][i], l);
        most = length > most ? length : most;
    }
    return most;
}

/* The hash of the logits after a list, from a new sequence. */
static uint64_t cold(oracle *o, const list *l) {
    const uint64_t key = gqac_hash_bytes(7, l->ids, (size_t)l->n * sizeof *l->ids);
    size_t at = (size_t)key;
    const gqac_slot *slot = gqac_table_slot(&o->bits, key, &at);
    if (slot)
        return slot->value;
    gqac_sequence *s = rig_sequence(o->program, 0);
    feed(o->context, s, l->ids, l->n);
    const uint64_t hash = rig_logits(o->context);
    gqac_sequence_free(s);
    CU_ASSERT_FATAL(gqac_table_add_number(&o->bits, key, hash));
    return hash;
}

/* After a step of n tokens: commits all of them, or whole blocks. */
static void commit_step(oracle *o, const live *a, int64_t n) {
    list l = a->tokens;
    if (n < 16)
        l.n = l.n / 64 * 64;
    if (l.n > a->tokens.n - n)
        commit(o, a->tenant, &l);
}

static void step(oracle *o, live *a, int64_t n) {
    const int64_t missing = gqac_sequence_missing(a->sequence), before = a->tokens.n;
    if (before + n > LENGTH)
        return;
    for (int64_t i = 0; i < n; i++)
        a->tokens.ids[a->tokens.n++] = draw(o, LETTERS);
    feed(o->context, a->sequence, a->tokens.ids + before, n);
    const uint64_t hash = rig_logits(o->context);
    CU_ASSERT_EQUAL_FATAL(hash, cold(o, &a->tokens));
    a->computed += n + missing;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_computed(a->sequence), a->computed);
    o->computed += a->watched ? n + missing : 0;
    if (a->watched)
        commit_step(o, a, n);
}

/* Most prompts begin like a committed list. */
static void open_live(oracle *o, live *a) {
    *a = (live){.tenant = (int)draw(o, 2), .watched = true};
    if (o->n[a->tenant] && draw(o, 8)) {
        const list *from = &o->committed[a->tenant][draw(o, (int64_t)o->n[a->tenant])];
        a->tokens.n = draw(o, from->n + 1);
        memcpy(a->tokens.ids, from->ids, (size_t)a->tokens.n * sizeof *from->ids);
    }
    const int64_t n = a->tokens.n, more = 1 + draw(o, 90);
    for (int64_t i = n; i < n + more && i < LENGTH; i++)
        a->tokens.ids[a->tokens.n++] = draw(o, LETTERS);
    int64_t reused = -1;
    const int64_t known = longest(o, a->tenant, &a->tokens), limit = a->tokens.n - 1;
    a->sequence = open_sequence(o->store, tenants[a->tenant], a->tokens.ids, a->tokens.n, &reused);
    CU_ASSERT_FATAL(reused >= 0 && reused <= limit && reused <= known);
    if (o->exact)
        CU_ASSERT_EQUAL_FATAL(reused, known < limit ? known : limit);
    o->hits += reused > 0;
    o->opened++;
    feed(o->context, a->sequence, a->tokens.ids + reused, a->tokens.n - reused);
    const uint64_t hash = rig_logits(o->context);
    CU_ASSERT_EQUAL_FATAL(hash, cold(o, &a->tokens));
    a->computed = a->tokens.n - reused;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_computed(a->sequence), a->computed);
    o->computed += a->computed;
    commit_step(o, a, a->computed);
}

static void close_live(oracle *o, live *a) {
    list rest = a->tokens;
    if (a->sequence && a->watched)
        rest.n -= gqac_sequence_missing(a->sequence); /* only rows that exist */
    if (a->sequence && a->watched && rest.n)
        commit(o, a->tenant, &rest);
    gqac_sequence_free(a->sequence);
    gqac_snapshot_free(a->snapshot);
    *a = (live){0};
}

/* Copies a sequence or snapshot to a free slot, as a fork, snapshot or restored sequence. */
static void copy_live(oracle *o, const live *a, live *b) {
    *b = *a;
    b->sequence = NULL;
    b->snapshot = NULL;
    b->computed = 0;
    if (a->snapshot) {
        b->watched = false;
        CU_ASSERT_EQUAL_FATAL(gqac_snapshot_restore(a->snapshot, NULL, &b->sequence, &diag),
                              GQAC_OK);
    } else if (draw(o, 2)) {
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(a->sequence, &b->sequence, &diag), GQAC_OK);
    } else {
        CU_ASSERT_EQUAL_FATAL(gqac_snapshot_take(a->sequence, &b->snapshot, &diag), GQAC_OK);
    }
}

static void one_operation(oracle *o, live *all) {
    live *a = &all[draw(o, LIVE)], *b = &all[draw(o, LIVE)];
    const int64_t what = draw(o, 16);
    if (!a->sequence && !a->snapshot) {
        open_live(o, a);
    } else if (!b->sequence && !b->snapshot && what < 6) {
        copy_live(o, a, b);
    } else if (a->snapshot || what == 0) {
        if (a->sequence || !draw(o, 4))
            close_live(o, a);
    } else if (what == 1 && a->tokens.n) {
        a->tokens.n = draw(o, a->tokens.n);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(a->sequence, a->tokens.n, &diag), GQAC_OK);
    } else if (what == 2 && !o->exact) {
        gqac_store_evict(o->store, draw(o, 8) ? rig_counts(o->store).bytes / 2 : 0);
    } else {
        step(o, a, what < 10 ? 1 : 1 + draw(o, 30));
    }
}

static void check_counts(const oracle *o, int64_t budget) {
    const gqac_store_statistics x = rig_counts(o->store);
    CU_ASSERT_FATAL(!budget || x.bytes <= budget);
    CU_ASSERT_EQUAL_FATAL(x.computed_tokens, o->computed);
    CU_ASSERT_EQUAL_FATAL(x.hits, o->hits);
    CU_ASSERT_EQUAL_FATAL(x.misses, o->opened - o->hits);
    CU_ASSERT_FATAL((size_t)x.blocks <= kv_pool_blocks_in_use(o->program->pool));
}

/* blocks: the budget, in blocks and states; 0: none. */
static void at_random(const char *model, bool exact, int64_t blocks, uint64_t seed, int steps) {
    gqac_program *p = rig_program(model, "cpu");
    gqac_memory memory = {.size = sizeof memory};
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(p, 1, 1, &memory, &diag), GQAC_OK);
    const int64_t budget = blocks * (memory.kv_block + memory.kv_tail + memory.kv_state);
    oracle o = {.program = p, .exact = exact && !budget, .random = seed};
    live all[LIVE] = {0};
    o.context = rig_context(p);
    o.store = rig_store(p, budget, budget * 2 / 3);
    for (int i = 0; i < steps / SLOWER; i++) {
        one_operation(&o, all);
        check_counts(&o, budget);
    }
    CU_ASSERT(SLOWER > 1 || o.hits > (o.exact ? o.opened / 2 : 0));
    CU_ASSERT(!blocks || SLOWER > 1 || rig_counts(o.store).evictions > 3);
    for (int i = 0; i < LIVE; i++)
        close_live(&o, &all[i]);
    check_counts(&o, budget);
    gqac_store_evict(o.store, 0);
    CU_ASSERT(rig_counts(o.store).bytes == 0 && rig_counts(o.store).prefixes == 0);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), 0);
    CU_ASSERT_EQUAL(kv_pool_states_in_use(p->pool), 0);
    gqac_store_free(o.store);
    gqac_table_free(&o.bits);
    gqac_free(o.committed[0]);
    gqac_free(o.committed[1]);
    gqac_context_free(o.context);
    gqac_program_free(p);
}

static void random_operations(void) {
    const int rounds = unit_count(1, 60);
    for (int i = 0; i < rounds; i++) {
        const uint64_t seed = 11 + (uint64_t)i; /* the same in every run */
        at_random("models/tiny-gqa/model.onnx", true, 0, seed, 250);
        at_random("models/tiny-gqa/model.onnx", true, 15, seed, 250);
        at_random("test/models/qwen3.5/model.onnx", false, 0, seed, 120);
        at_random("test/models/qwen3.5/model.onnx", false, 20, seed, 120);
        at_random("test/models/lfm2/model.onnx", true, 0, seed, 120);
    }
}

/* ---- threads ------------------------------------------------------------- */

typedef struct worker {
    gqac_store *store;
    const gqac_program *program;
    uint64_t expected[6]; /* indexed by seed */
    int first;
    bool right;
} worker;

/* CUnit is not called, because this runs in a thread. */
static void *work(void *arg) {
    worker *w = arg;
    gqac_diag own = {0};
    gqac_context *context = NULL;
    w->right = gqac_context_create(w->program, 1, &context, &own) == GQAC_OK;
    for (int i = 0; i < unit_count(30, 300) / SLOWER && w->right; i++) {
        int64_t ids[LENGTH], reused = 0;
        const int seed = (w->first + i) % 6;
        gqac_sequence *s = NULL;
        rig_ids(ids, 140, 1);
        ids[20 * seed + 5] ^= 1;
        w->right =
            gqac_store_open(w->store, NULL, ids, 140, NULL, &s, &reused, &own) == GQAC_OK &&
            gqac_sequence_append(context, s, ids + reused, 140 - reused, 1, &own) == GQAC_OK &&
            rig_logits(context) == w->expected[seed] && gqac_sequence_computed(s) == 140 - reused;
        gqac_sequence_free(s);
        if (i % 7 == 0)
            gqac_store_evict(w->store, 0);
    }
    gqac_context_free(context);
    return NULL;
}

static void several_threads(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_store *store = rig_store(p, 0, 0), *empty = rig_store(p, 0, 0);
    pthread_t threads[THREADS];
    worker workers[THREADS] = {{.store = store, .program = p}};
    for (int seed = 0; seed < 6; seed++) {
        int64_t ids[LENGTH];
        gqac_sequence *s = rig_sequence(p, 0);
        rig_ids(ids, 140, 1);
        ids[20 * seed + 5] ^= 1;
        feed(context, s, ids, 140);
        workers[0].expected[seed] = rig_logits(context);
        gqac_sequence_free(s);
    }
    for (int i = 1; i < THREADS; i++) {
        workers[i] = workers[0];
        workers[i].first = i;
    }
    for (int i = 0; i < THREADS; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, work, &workers[i]), 0)
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CU_ASSERT(workers[i].right);
    }
    CU_ASSERT(rig_counts(store).hits > 0);
    gqac_store_free(store);
    gqac_store_free(empty);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), 0);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* ---- errors -------------------------------------------------------------- */

static void errors(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_program *q = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_store_options options;
    gqac_store *store = NULL;
    gqac_sequence *s = NULL;
    int64_t reused = 0;
    const int64_t ids[] = {1, 2, 3};
    gqac_store_options_init(&options);
    options.budget = -1;
    CU_ASSERT_EQUAL(gqac_store_create(p, &options, &store, &diag), GQAC_OUT_OF_RANGE);
    options.budget = 0;
    options.folder = "/nowhere/at/all";
    CU_ASSERT_EQUAL(gqac_store_create(p, &options, &store, &diag), GQAC_IO);
    store = rig_store(p, 0, 0);
    CU_ASSERT_EQUAL(gqac_store_open(store, NULL, ids, 0, NULL, &s, &reused, &diag),
                    GQAC_OUT_OF_RANGE);
    s = rig_sequence(q, 0);
    CU_ASSERT_EQUAL(gqac_store_add(store, NULL, s, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_store_save(store, NULL, s, &diag), GQAC_USAGE);
    gqac_sequence_free(s);
    gqac_store_free(store);
    gqac_store_free(NULL);
    gqac_program_free(p);
    gqac_program_free(q);
}

/* Every allocation fails once: the call fails or continues without the index, nothing leaks, and
 * the bits are correct. */
static void memory_runs_out(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    int64_t ids[100], reused = 0;
    rig_ids(ids, 100, 1);
    const size_t live = gqac_alloc_live();
    bool failed = true;
    for (size_t n = 1; failed; n++) {
        gqac_store *store = rig_store(p, 0, 0);
        gqac_sequence *s = NULL;
        CU_ASSERT_EQUAL(visit(store, context, NULL, 1, 70), 0);
        ids[40] = (int64_t)(n % 200);
        gqac_alloc_fail_at(n, 0);
        gqac_status status = gqac_store_open(store, NULL, ids, 100, NULL, &s, &reused, &diag);
        if (status == GQAC_OK)
            status = gqac_sequence_append(context, s, ids + reused, 100 - reused, 1, &diag);
        gqac_sequence_free(s);
        failed = gqac_alloc_calls() >= n;
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT_FATAL(status == GQAC_OK || (failed && status == GQAC_NO_MEMORY));
        CU_ASSERT(gqac_store_match(store, NULL, NULL, ids, 100) >= 40);
        gqac_store_free(store);
        CU_ASSERT_EQUAL_FATAL(kv_pool_blocks_in_use(p->pool), 0);
    }
    CU_ASSERT(gqac_alloc_live() >= live);
    gqac_context_free(context);
    gqac_program_free(p);
}

static const unit_case cases[] = {
    {"lengths", lengths},
    {"growing", growing},
    {"keys", keys},
    {"eviction", eviction},
    {"shared prefixes", shared_prefixes},
    {"random operations", random_operations},
    {"several threads", several_threads},
    {"errors", errors},
    {"memory runs out", memory_runs_out},
};

int main(int argc, char **argv) {
    return unit_run("store/store", cases, sizeof cases / sizeof *cases, argc, argv);
}
