/* The remote tier of a store: what one store saved, another one reuses, with the same bits; a tier
 * that is down, is slow, loses values or returns wrong data changes no bit, and such events are
 * counted. */
#include "runtime/rig.h"
#include "store/entry.h"
#include "store/fetch.h"
#include "store/support_tier.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"

enum { N = 210, LONG = 60000, SHORT = 20 }; /* in ms; the first is never reached */

static gqac_diag diag;

/* A machine: a program with its stores. */
typedef struct machine {
    gqac_program *program;
    gqac_context *context;
} machine;

static machine open_machine(const char *model) {
    machine m = {.program = rig_program(model, "cpu")};
    m.context = rig_context(m.program);
    return m;
}

static void close_machine(machine *m) {
    gqac_context_free(m->context);
    gqac_program_free(m->program);
}

static gqac_store *store_on(const machine *m, tier *t) {
    const gqac_store_remote functions = tier_functions(t);
    const gqac_store_options options = {.size = sizeof options,
                                        .remote = &functions,
                                        .remote_ms = t->fault == TIER_FIND_LATE ? SHORT : LONG};
    return rig_store_of(m->program, &options);
}

/* Computes a prompt through a store, saves it, and returns the number of reused tokens. */
static int64_t feed(const machine *m, gqac_store *store, const char *tenant, const char *kind,
                    const int64_t *ids, int64_t n, bool save, uint64_t *bits) {
    const gqac_sequence_options options = {.size = sizeof options, .kv = kind};
    gqac_sequence *s = NULL;
    int64_t reused = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, tenant, ids, n, &options, &s, &reused, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(m->context, s, ids + reused, n - reused, 1, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_computed(s), n - reused);
    *bits = rig_logits(m->context);
    if (save)
        CU_ASSERT_EQUAL(gqac_store_save(store, tenant, s, &diag), GQAC_OK);
    gqac_sequence_free(s);
    return reused;
}

/* The same with a new store. */
static int64_t visit(const machine *m, tier *t, const char *tenant, const char *kind,
                     const int64_t *ids, int64_t n, bool save, uint64_t *bits,
                     gqac_store_statistics *x) {
    gqac_store *store = store_on(m, t);
    const int64_t reused = feed(m, store, tenant, kind, ids, n, save, bits);
    *x = rig_counts(store);
    gqac_store_free(store);
    return reused;
}

static uint64_t cold(const machine *m, const char *kind, const int64_t *ids, int64_t n) {
    uint64_t bits = 0;
    gqac_store *store = rig_store(m->program, 0, 0);
    CU_ASSERT_EQUAL(feed(m, store, NULL, kind, ids, n, false, &bits), 0);
    gqac_store_free(store);
    return bits;
}

/* ---- what is shared ------------------------------------------------------ */

static void shared_with(const char *model, const char *kind) {
    int64_t ids[N], other[N];
    uint64_t bits = 0;
    gqac_store_statistics x;
    tier t = {.n = 0};
    machine a = open_machine(model), b = open_machine(model);
    rig_ids(ids, N, 1);
    rig_ids(other, N, 2);
    memcpy(other, ids, 140 * sizeof *ids);
    CU_ASSERT_EQUAL(visit(&a, &t, "a", kind, ids, 200, true, &bits, &x), 0);
    CU_ASSERT(x.remote_misses == 1 && x.remote_hits == 0 && x.remote_saved == (int64_t)t.n);
    CU_ASSERT(t.n > 0 && x.remote_written_bytes > 0 && x.remote_read_bytes == 0);
    CU_ASSERT_EQUAL(visit(&b, &t, "a", kind, ids, N, false, &bits, &x), 192);
    CU_ASSERT_EQUAL(bits, cold(&b, kind, ids, N));
    CU_ASSERT(x.remote_hits == 1 && x.remote_misses == 0 && x.remote_read_bytes > 0);
    CU_ASSERT_EQUAL(visit(&b, &t, "a", kind, other, N, false, &bits, &x), 128);
    CU_ASSERT_EQUAL(bits, cold(&b, kind, other, N));
    CU_ASSERT_EQUAL(visit(&b, &t, "b", kind, ids, N, false, &bits, &x), 0);
    CU_ASSERT_EQUAL(visit(&b, &t, "a\nb", kind, ids, N, false, &bits, &x), 0);
    CU_ASSERT(x.remote_misses == 1 && x.remote_errors == 0 && x.remote_damaged == 0);
    CU_ASSERT_EQUAL(visit(&b, &t, "a", kind ? NULL : "paged", ids, N, false, &bits, &x), 0);
    tier_free(&t);
    close_machine(&a);
    close_machine(&b);
}

static void shared(void) {
    shared_with("models/tiny-gqa/model.onnx", NULL);
    shared_with("models/tiny-gqa/model.onnx", "quantised");
    shared_with("models/tiny-gqa/model.onnx", "quantised4");
    shared_with("models/tiny-gqa/model.onnx", "windowed");
    shared_with("test/models/llama-fp16/model.onnx", NULL);
    shared_with("test/models/lfm2/model.onnx", NULL);
}

/* Models with states, and windows with blocks of their own, store whole prefixes as values. */
static void shared_whole(void) {
    shared_with("test/models/qwen3.5/model.onnx", NULL);
    shared_with("test/models/gemma2/model.onnx", "windowed");
}

/* Whole prefixes are written from the shortest on: it exists even if a longer one takes too
 * long. */
static void shortest_first(void) {
    enum { LENGTH = 4 * GQAC_KV_BLOCK + 1 };
    int64_t ids[LENGTH];
    uint64_t bits = 0;
    tier t = {.n = 0};
    gqac_store_statistics x;
    machine m = open_machine("test/models/qwen3.5/model.onnx");
    rig_ids(ids, LENGTH, 1);
    visit(&m, &t, NULL, NULL, ids, LENGTH, true, &bits, &x);
    CU_ASSERT_FATAL(t.n > 1);
    for (size_t i = 1; i < t.n; i++)
        CU_ASSERT(t.values[i - 1].bytes < t.values[i].bytes);
    tier_free(&t);
    close_machine(&m);
}

/* Only tokens that are not in memory are read, and only those that the tier lacks are written. */
static void continued(void) {
    int64_t ids[N];
    uint64_t bits = 0;
    tier t = {.n = 0};
    gqac_store_statistics x;
    machine m = open_machine("models/tiny-gqa/model.onnx");
    rig_ids(ids, N, 1);
    gqac_store *store = store_on(&m, &t);
    CU_ASSERT_EQUAL(feed(&m, store, NULL, NULL, ids, 100, true, &bits), 0);
    CU_ASSERT(t.n == 1 && rig_counts(store).remote_saved == 1);
    CU_ASSERT_EQUAL(visit(&m, &t, NULL, NULL, ids, 200, true, &bits, &x), 64);
    CU_ASSERT(t.n == 3 && x.remote_saved == 2);
    const int64_t value = (int64_t)t.values[0].bytes;
    CU_ASSERT_EQUAL(feed(&m, store, NULL, NULL, ids, N, true, &bits), 192);
    CU_ASSERT_EQUAL(bits, cold(&m, NULL, ids, N));
    x = rig_counts(store);
    CU_ASSERT(x.remote_read_bytes == 2 * value && x.remote_saved == 1);
    const int calls = t.calls;
    CU_ASSERT_EQUAL(feed(&m, store, NULL, NULL, ids, N, false, &bits), N - 1);
    CU_ASSERT_EQUAL(t.calls, calls); /* all full blocks are in memory */
    gqac_store_free(store);
    tier_free(&t);
    close_machine(&m);
}

/* Rows depend on all ids before them: a block with the same ids after different ones has another
 * key. */
static void chained(void) {
    int64_t ids[N], other[N];
    uint64_t bits = 0;
    gqac_store_statistics x;
    tier t = {.n = 0};
    machine m = open_machine("models/tiny-gqa/model.onnx");
    rig_ids(ids, N, 1);
    rig_ids(other, N, 2);
    memcpy(other + GQAC_KV_BLOCK, ids + GQAC_KV_BLOCK, GQAC_KV_BLOCK * sizeof *ids);
    visit(&m, &t, NULL, NULL, ids, 70, true, &bits, &x);
    visit(&m, &t, NULL, NULL, other, 150, true, &bits, &x);
    CU_ASSERT_EQUAL(visit(&m, &t, NULL, NULL, ids, N, false, &bits, &x), 64);
    CU_ASSERT_EQUAL(bits, cold(&m, NULL, ids, N));
    tier_free(&t);
    close_machine(&m);
}

static void other_models(void) {
    int64_t ids[N];
    uint64_t bits = 0;
    gqac_store_statistics x;
    tier t = {.n = 0};
    machine a = open_machine("models/tiny-gqa/model.onnx");
    machine b = open_machine("test/models/llama/model.onnx");
    rig_ids(ids, N, 1);
    visit(&a, &t, NULL, NULL, ids, 200, true, &bits, &x);
    CU_ASSERT_EQUAL(visit(&b, &t, NULL, NULL, ids, N, false, &bits, &x), 0);
    CU_ASSERT(x.remote_misses == 1 && x.remote_damaged == 0);
    tier_free(&t);
    close_machine(&a);
    close_machine(&b);
}

/* Rows of the two sides of a LongRoPE threshold have different keys. */
static void sides(void) {
    int64_t ids[N], threshold = 0;
    uint64_t bits = 0;
    gqac_store_statistics x;
    tier t = {.n = 0};
    machine m = open_machine("test/models/phi3/model.onnx");
    CU_ASSERT_EQUAL(gqac_program_rope_threshold(m.program, &threshold, &diag), GQAC_OK);
    CU_ASSERT_FATAL(threshold == GQAC_KV_BLOCK);
    rig_ids(ids, N, 1);
    visit(&m, &t, NULL, NULL, ids, threshold, true, &bits, &x);
    CU_ASSERT_EQUAL(t.n, 1);
    CU_ASSERT_EQUAL(visit(&m, &t, NULL, NULL, ids, N, true, &bits, &x), 0);
    CU_ASSERT(t.n == 4 && bits == cold(&m, NULL, ids, N));
    CU_ASSERT_EQUAL(visit(&m, &t, NULL, NULL, ids, N, false, &bits, &x), 192);
    CU_ASSERT_EQUAL(bits, cold(&m, NULL, ids, N));
    tier_free(&t);
    close_machine(&m);
}

/* ---- faults -------------------------------------------------------------- */

static void faulty_with(const char *model) {
    static const struct fault {
        tier_fault fault;
        size_t at;
        int errors, damaged; /* damaged: at least */
    } faults[] = {
        {TIER_DOWN, 0, 1, 0},        {TIER_GET_FAILS, 0, 1, 0},  {TIER_FIND_LATE, 0, 1, 0},
        {TIER_FORGETS, 0, 0, 0},     {TIER_FLIPS, 0, 0, 1},      {TIER_FLIPS, 40, 0, 1},
        {TIER_FLIPS, 130, 0, 1},     {TIER_FLIPS, 1000, 0, 1},   {TIER_SWAPS, 0, 0, 1},
        {TIER_CUTS, 1, 0, 1},        {TIER_CUTS, 640, 0, 1},     {TIER_CUTS_LATER, 641, 0, 1},
        {TIER_HUGE, SIZE_MAX, 0, 1}, {TIER_HUGE, 1 << 30, 0, 1}, {TIER_CUTS_LATER, 1 << 30, 0, 1},
    };
    int64_t ids[N], next[N];
    uint64_t bits = 0;
    tier t = {.n = 0};
    gqac_store_statistics x;
    machine m = open_machine(model);
    rig_ids(ids, N, 1);
    rig_ids(next, N, 3);
    visit(&m, &t, NULL, NULL, next, 150, true, &bits, &x);
    visit(&m, &t, NULL, NULL, ids, 200, true, &bits, &x);
    const uint64_t right = cold(&m, NULL, ids, N);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        t.fault = faults[i].fault;
        t.at = faults[i].at;
        gqac_store *store = store_on(&m, &t);
        CU_ASSERT_EQUAL(feed(&m, store, NULL, NULL, ids, N, false, &bits), 0);
        CU_ASSERT_EQUAL(bits, right);
        x = rig_counts(store);
        if (x.remote_errors != faults[i].errors || x.remote_hits ||
            (x.remote_damaged > 0) != (faults[i].damaged > 0)) {
            printf("fault %zu: %lld errors, %lld damaged, %lld hits\n", i,
                   (long long)x.remote_errors, (long long)x.remote_damaged,
                   (long long)x.remote_hits);
            CU_FAIL("a fault is not counted");
        }
        gqac_store_free(store);
    }
    tier_free(&t);
    close_machine(&m);
}

static void faulty(void) {
    faulty_with("models/tiny-gqa/model.onnx");
    faulty_with("test/models/qwen3.5/model.onnx");
}

/* After a failure, searches and saves do not use the tier for a second. */
static void paused(void) {
    int64_t ids[N], reused = 0;
    uint64_t bits = 0;
    tier t = {.n = 0, .fault = TIER_DOWN};
    const struct timespec second = {.tv_sec = 1, .tv_nsec = 50000000};
    machine m = open_machine("models/tiny-gqa/model.onnx");
    gqac_store *store = store_on(&m, &t);
    gqac_sequence *s = rig_sequence(m.program, 0), *q = NULL;
    rig_ids(ids, N, 1);
    CU_ASSERT_EQUAL(gqac_sequence_append(m.context, s, ids, 100, 1, &diag), GQAC_OK);
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(gqac_store_open(store, NULL, ids, 100, NULL, &q, &reused, &diag), GQAC_OK);
        gqac_sequence_free(q);
        CU_ASSERT_EQUAL(gqac_store_save(store, NULL, s, &diag), GQAC_OK);
    }
    CU_ASSERT(t.calls == 2 && rig_counts(store).remote_errors == 2);
    t.fault = TIER_SOUND;
    nanosleep(&second, NULL);
    feed(&m, store, NULL, NULL, ids, 100, true, &bits);
    CU_ASSERT(t.calls > 4 && t.n == 1 && rig_counts(store).remote_errors == 2);
    gqac_sequence_free(s);
    gqac_store_free(store);
    tier_free(&t);
    close_machine(&m);
}

/* A value that was found to be damaged is written again. */
static void mended(void) {
    int64_t ids[N];
    uint64_t bits = 0;
    tier t = {.n = 0};
    gqac_store_statistics x;
    machine m = open_machine("models/tiny-gqa/model.onnx");
    rig_ids(ids, N, 1);
    visit(&m, &t, NULL, NULL, ids, 200, true, &bits, &x);
    t.values[1].data[700] ^= 4;
    CU_ASSERT_EQUAL(visit(&m, &t, NULL, NULL, ids, N, true, &bits, &x), 64);
    CU_ASSERT(x.remote_damaged == 1 && x.remote_saved == 1 && x.remote_hits == 1);
    CU_ASSERT_EQUAL(bits, cold(&m, NULL, ids, N));
    CU_ASSERT_EQUAL(visit(&m, &t, NULL, NULL, ids, N, true, &bits, &x), 192);
    CU_ASSERT(x.remote_damaged == 0 && x.remote_saved == 0);
    tier_free(&t);
    close_machine(&m);
}

/* The form of a value that was saved for the tenant "". */
static entry_form form_of(const machine *m, const unsigned char *data) {
    gqac_sequence *s = rig_sequence(m->program, 0);
    unsigned char model[32];
    entry_form form;
    memcpy(model, data + offsetof(entry_front, model), sizeof model);
    CU_ASSERT_FATAL(entry_form_of(s, model, "", 0, &form));
    gqac_sequence_free(s);
    return form;
}

/* No byte of a value can change unnoticed: tested for all bytes of the header and of the ids, and
 * some of the rest. A value with correct digests is checked like a file. */
static void flipped(const char *model) {
    int64_t ids[N];
    uint64_t bits = 0;
    tier t = {.n = 0};
    gqac_store_statistics x;
    gqac_store_key key;
    int64_t reused = 0;
    machine m = open_machine(model);
    rig_ids(ids, N, 1);
    visit(&m, &t, NULL, NULL, ids, 70, true, &bits, &x);
    CU_ASSERT_EQUAL_FATAL(t.n, 1);
    unsigned char *data = t.values[0].data;
    const size_t bytes = t.values[0].bytes;
    const entry_form form = form_of(&m, data);
    entry_keys(&form, ids, 1, &key);
    CU_ASSERT(!memcmp(&key, &t.values[0].key, sizeof key));
    CU_ASSERT(entry_check(&form, &key, ids, 0, data, bytes));
    for (size_t i = 0; i < bytes; i += i < ENTRY_BODY ? 1 : 97) {
        data[i] ^= 0x10;
        CU_ASSERT_FALSE(entry_check(&form, &key, ids, 0, data, bytes));
        if (i < ENTRY_BODY) { /* with the correct digest */
            unsigned char *digest = ((entry_front *)(void *)data)->digest;
            memset(digest, 0, 32);
            rig_digest(digest, data, bytes);
            const bool of_digest = i >= offsetof(entry_front, digest) && i < sizeof(entry_front);
            CU_ASSERT_EQUAL(entry_check(&form, &key, ids, 0, data, bytes), of_digest);
        }
        if (i >= ENTRY_BODY && i < ENTRY_BODY + 97 * 30) { /* with the correct digest */
            gqac_store *store = store_on(&m, &t);
            entry_seal(&form, &key, ids, 0, data, bytes);
            gqac_sequence *q = NULL;
            CU_ASSERT_EQUAL(gqac_store_open(store, NULL, ids, 70, NULL, &q, &reused, &diag),
                            GQAC_OK);
            CU_ASSERT_EQUAL(reused, form.whole ? 0 : 64);
            CU_ASSERT_EQUAL(rig_counts(store).remote_damaged, form.whole);
            CU_ASSERT_EQUAL(gqac_sequence_append(m.context, q, ids + reused, 70 - reused, 1, &diag),
                            GQAC_OK);
            gqac_sequence_free(q);
            gqac_store_free(store);
        }
        if (i < offsetof(entry_front, digest) || i >= sizeof(entry_front))
            data[i] ^= 0x10;
        entry_seal(&form, &key, ids, 0, data, bytes);
    }
    tier_free(&t);
    close_machine(&m);
}

static void flips(void) {
    flipped("models/tiny-gqa/model.onnx");
    flipped("test/models/qwen3.5/model.onnx");
}

/* A saved sequence of other tokens, under the right key and with correct checksums. */
static void foreign(void) {
    int64_t ids[N], other[N];
    uint64_t bits = 0;
    gqac_store_statistics x;
    tier t = {.n = 0};
    machine m = open_machine("test/models/qwen3.5/model.onnx");
    rig_ids(ids, N, 1);
    rig_ids(other, N, 2);
    visit(&m, &t, NULL, NULL, ids, 70, true, &bits, &x);
    visit(&m, &t, NULL, NULL, other, 70, true, &bits, &x);
    CU_ASSERT_FATAL(t.n == 2 && t.values[0].bytes == t.values[1].bytes);
    unsigned char *data = t.values[0].data;
    const entry_form form = form_of(&m, data);
    for (int i = 0; i < 2; i++) { /* unchanged; with the body of the other value */
        CU_ASSERT_EQUAL(visit(&m, &t, NULL, NULL, ids, N, false, &bits, &x), i ? 0 : 64);
        CU_ASSERT(x.remote_damaged == i && bits == cold(&m, NULL, ids, N));
        memcpy(data + ENTRY_BODY, t.values[1].data + ENTRY_BODY, t.values[0].bytes - ENTRY_BODY);
        entry_seal(&form, &t.values[0].key, ids, 0, data, t.values[0].bytes);
    }
    tier_free(&t);
    close_machine(&m);
}

/* ---- limits -------------------------------------------------------------- */

static void limits(void) {
    int64_t ids[N];
    uint64_t bits = 0;
    tier t = {.n = 0};
    gqac_store_statistics x;
    gqac_store *store = NULL;
    machine m = open_machine("models/tiny-gqa/model.onnx");
    gqac_store_remote functions = tier_functions(&t);
    gqac_store_options options = {.size = sizeof options, .remote = &functions, .remote_ms = LONG};
    rig_ids(ids, N, 1);
    visit(&m, &t, NULL, NULL, ids, 200, true, &bits, &x);
    options.budget = 100000; /* a block has 64 KiB */
    store = rig_store_of(m.program, &options);
    CU_ASSERT_EQUAL(feed(&m, store, NULL, NULL, ids, N, false, &bits), 64);
    CU_ASSERT(rig_counts(store).bytes <= options.budget);
    gqac_store_free(store);
    options.remote_ms = -1;
    CU_ASSERT_EQUAL(gqac_store_create(m.program, &options, &store, &diag), GQAC_OUT_OF_RANGE);
    options.remote_ms = INT64_MAX; /* no overflow */
    store = rig_store_of(m.program, &options);
    CU_ASSERT_EQUAL(feed(&m, store, NULL, NULL, ids, N, false, &bits), 64);
    gqac_store_free(store);
    functions.put = NULL;
    CU_ASSERT_EQUAL(gqac_store_create(m.program, &options, &store, &diag), GQAC_USAGE);
    tier_free(&t);
    close_machine(&m);
}

/* A fetched prompt is opened without another call to the tier. The tier is not called for a prompt
 * that has waited longer than its time limit, or whose full blocks are all in memory. */
static void fetched(void) {
    int64_t ids[N], reused = 0;
    uint64_t bits = 0;
    tier t = {.n = 0};
    gqac_store_statistics x;
    gqac_sequence *q = NULL;
    const gqac_sequence_options options = {.size = sizeof options};
    machine m = open_machine("models/tiny-gqa/model.onnx");
    rig_ids(ids, N, 1);
    visit(&m, &t, "a", NULL, ids, 200, true, &bits, &x);
    gqac_store *store = store_on(&m, &t);
    const int calls = t.calls;
    CU_ASSERT(store_has_remote(store) && store_can_fetch(store, "a", NULL, ids, N));
    CU_ASSERT_FALSE(store_can_fetch(store, "a", NULL, ids, GQAC_KV_BLOCK));
    store_fetch(store, "a", ids, N, &options, (int64_t)LONG * 1000000);
    CU_ASSERT_EQUAL(t.calls, calls);
    CU_ASSERT_EQUAL(store_open_fetched(store, "a", ids, N, &options, &q, &reused, &diag), GQAC_OK);
    gqac_sequence_free(q);
    CU_ASSERT(reused == 0 && t.calls == calls);
    store_fetch(store, "a", ids, N, &options, (int64_t)LONG * 1000000 - 1);
    CU_ASSERT_EQUAL(t.calls, calls + 1 + 3);
    CU_ASSERT_FALSE(store_can_fetch(store, "a", NULL, ids, N));
    CU_ASSERT(store_can_fetch(store, "b", NULL, ids, N));
    CU_ASSERT_EQUAL(store_open_fetched(store, "a", ids, N, &options, &q, &reused, &diag), GQAC_OK);
    gqac_sequence_free(q);
    CU_ASSERT(reused == 192 && t.calls == calls + 4);
    store_fetch(store, "a", ids, 0, &options, 0); /* cannot be opened */
    CU_ASSERT_EQUAL(store_open_fetched(store, "a", ids, 0, &options, &q, &reused, &diag),
                    GQAC_OUT_OF_RANGE);
    gqac_store_free(store);
    tier_free(&t);
    close_machine(&m);
}

/* Each allocation of a search and a save fails once: the prompt is computed nevertheless. */
static void no_memory(const char *model) {
    int64_t ids[N];
    uint64_t bits = 0;
    tier t = {.n = 0};
    gqac_store_statistics x;
    const size_t live = gqac_alloc_live();
    machine m = open_machine(model);
    rig_ids(ids, N, 1);
    visit(&m, &t, NULL, NULL, ids, 140, true, &bits, &x);
    const uint64_t right = cold(&m, NULL, ids, N);
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL(visit(&m, &t, NULL, NULL, ids, N, false, &bits, &x), 128);
    const size_t calls = gqac_alloc_calls();
    size_t tried = 0;
    for (size_t n = 1; n <= calls; n += 1 + n / 20, tried++) {
        gqac_store *store = store_on(&m, &t);
        gqac_sequence *s = NULL;
        int64_t reused = 0;
        gqac_alloc_fail_at(n, 0);
        const gqac_status status = gqac_store_open(store, NULL, ids, N, NULL, &s, &reused, &diag);
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY);
        if (status == GQAC_OK) {
            CU_ASSERT_EQUAL(gqac_sequence_append(m.context, s, ids + reused, N - reused, 1, &diag),
                            GQAC_OK);
            CU_ASSERT_EQUAL(rig_logits(m.context), right);
            gqac_alloc_fail_at(n, 0);
            CU_ASSERT_EQUAL(gqac_store_save(store, NULL, s, &diag), GQAC_OK);
            gqac_alloc_fail_at(0, 0);
        }
        gqac_sequence_free(s);
        gqac_store_free(store);
    }
    CU_ASSERT(tried > 20);
    CU_ASSERT_EQUAL(visit(&m, &t, NULL, NULL, ids, N, false, &bits, &x), 192);
    CU_ASSERT(bits == right && !x.remote_damaged);
    tier_free(&t);
    close_machine(&m);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}

static void allocations(void) {
    no_memory("models/tiny-gqa/model.onnx");
    no_memory("test/models/qwen3.5/model.onnx");
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"what one machine saved another reuses", shared},
        {"whole prefixes", shared_whole},
        {"the shortest of whole prefixes is written first", shortest_first},
        {"only what is missing is read and written", continued},
        {"the same block after other ids", chained},
        {"values of other models are not used", other_models},
        {"sides of a LongRoPE threshold", sides},
        {"a tier that is down, slow, forgetful or lying", faulty},
        {"a tier that failed is left alone", paused},
        {"a damaged value is replaced", mended},
        {"every byte of a value is checked", flips},
        {"the sequence of other tokens", foreign},
        {"budgets and options", limits},
        {"what was fetched before", fetched},
        {"allocations that fail", allocations},
    };
    return unit_run("store_remote", cases, sizeof cases / sizeof *cases, argc, argv);
}
