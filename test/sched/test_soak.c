/* A soak: on one program with a memory budget of 256 MB, sequences, the requests of a scheduler,
 * snapshots and a prefix store with files are opened, extended, rewound, forked, saved, aborted,
 * cancelled and evicted at random. Requests have drafts if the model allows it. GQAC_TEST_SEED
 * seeds the random numbers; where a step is aborted also depends on the clock.
 *
 * Every 100th output is compared with a run of its tokens alone: no bit may differ. A call that
 * fails for lack of memory must leave its sequences unchanged. At the end every allocation must
 * have been freed; in runs of an hour or more, neither allocated nor resident memory may grow after
 * a warm-up.
 *
 * A run takes half a second for each model, 30 seconds in the long tier, or GQAC_TEST_SECONDS:
 *
 *   GQAC_TEST_SECONDS=7200 build/release/test/test_sched_soak "attention only"
 * */
#include "base/alloc.h"
#include "sched/rig.h"

#include <malloc.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS = 200,
    REQUESTS = 24,
    SNAPSHOTS = 128,
    MOST = 600, /* tokens of a sequence; less if the model has fewer positions */
    ITEMS = 8,
    DRAFTS = 4,
    EVERY = 100
};
static const int64_t BUDGET = 256 << 20, STORE = 224 << 20, FILES = 16 << 20;
static const double MIB = 1 << 20;

/* A sequence, and the tokens that it should have. */
typedef struct slot {
    gqac_sequence *sequence;
    int64_t n, ids[MOST];
} slot;

/* Sums for fitting a straight line to points (t, y). */
typedef struct line {
    double n, t, y, tt, ty, first, last;
} line;

/* Memory in bytes: allocated by malloc, freed but kept by malloc, and resident. */
typedef struct memory {
    line given, kept, resident;
} memory;

typedef struct soak {
    rig rig, oracle;
    gqac_store *store;
    gqac_scheduler *scheduler;
    char folder[64];
    int64_t most;
    slot slots[SLOTS];
    client clients[REQUESTS];
    gqac_snapshot *snapshots[SNAPSHOTS];
    int64_t polls; /* calls of the monitor until it ends the step */
    uint64_t state;
    int64_t operations, tokens, outputs, compared, differing, shortages, aborted, failed;
} soak;

static soak x;
static gqac_diag diag;

/* 0 .. n-1 */
static int64_t any(int64_t n) {
    x.state = x.state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((x.state >> 33) % (uint64_t)n);
}

static const char *any_tenant(void) {
    return any(3) ? NULL : "other";
}

/* ---- slots ----------------------------------------------------------------- */

static void drop(slot *s) {
    gqac_sequence_free(s->sequence);
    s->sequence = NULL;
    s->n = 0;
}

static slot *any_slot(void) {
    return &x.slots[any(SLOTS)];
}

static slot *empty_slot(void) {
    slot *s = any_slot();
    for (int i = 0; i < SLOTS && s->sequence; i++)
        s = s == &x.slots[SLOTS - 1] ? x.slots : s + 1;
    return s->sequence ? NULL : s;
}

/* A random sequence with at least one token, or NULL. */
static slot *used_slot(void) {
    slot *s = any_slot();
    return s->sequence && s->n ? s : NULL;
}

/* Evicts until this many 64ths of the store are left. */
static void evict_to(int64_t parts) {
    gqac_store_statistics s = {.size = sizeof s};
    CU_ASSERT_EQUAL_FATAL(gqac_store_get_statistics(x.store, &s, &diag), GQAC_OK);
    gqac_store_evict(x.store, s.bytes / 64 * parts);
}

/* True if the call succeeded. If memory is short, frees some, as a host would do. */
static bool succeeded(gqac_status status) {
    if (status == GQAC_OK)
        return true;
    if (status != GQAC_CAPACITY) {
        printf("  status %d: %s (%s)\n", (int)status, diag.what, diag.where);
        CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    }
    x.shortages++;
    evict_to(60);
    for (int i = 0; i < 4; i++)
        drop(any_slot());
    gqac_snapshot **s = &x.snapshots[any(SNAPSHOTS)];
    gqac_snapshot_free(*s);
    *s = NULL;
    return false;
}

/* Fills an empty slot with a sequence and its tokens. */
static void put(slot *s, gqac_sequence *sequence) {
    int64_t first = 0;
    s->sequence = sequence;
    const int64_t *ids = gqac_sequence_ids(sequence, &first, &s->n);
    CU_ASSERT_FATAL(!first && s->n <= MOST && s->n == gqac_sequence_length(sequence));
    if (s->n)
        memcpy(s->ids, ids, (size_t)s->n * sizeof *ids);
}

static void require_unchanged(const slot *s) {
    int64_t first = 0, n = 0;
    const int64_t *ids = gqac_sequence_ids(s->sequence, &first, &n);
    CU_ASSERT_FATAL(gqac_sequence_length(s->sequence) == s->n && n == s->n);
    CU_ASSERT_FATAL(!n || !memcmp(ids, s->ids, (size_t)n * sizeof *ids));
}

/* ---- outputs ---------------------------------------------------------------- */

/* Compares logits of the last token of a slot with those of a new sequence of the same kind. */
static void compare(const slot *s, const float *logits, int64_t width) {
    gqac_sequence_options options;
    gqac_sequence *alone = NULL;
    int64_t rows = 0, other = 0;
    gqac_sequence_options_init(&options);
    options.kv = gqac_sequence_kind(s->sequence);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(x.oracle.program, &options, &alone, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(x.oracle.context, alone, s->ids, s->n, 1, &diag),
                          GQAC_OK);
    const float *expected = gqac_context_logits(x.oracle.context, 0, &rows, &other);
    CU_ASSERT_FATAL(expected && rows == 1 && other == width);
    x.compared++;
    if (memcmp(expected, logits, (size_t)width * sizeof *logits) != 0) {
        x.differing++;
        printf("  operation %lld, a sequence of kind %s with %lld tokens: other bits\n",
               (long long)x.operations, options.kv, (long long)s->n);
    }
    gqac_sequence_free(alone);
}

static void output(const slot *s, int item) {
    int64_t rows = 0, width = 0;
    const float *logits = gqac_context_logits(x.rig.context, item, &rows, &width);
    CU_ASSERT_FATAL(logits && rows == 1);
    if (++x.outputs % EVERY == 0)
        compare(s, logits, width);
}

/* Appends letters to some sequences in one step. polls >= 0: a monitor ends it after this many
 * calls. */
static void extend_some(int64_t polls) {
    static int64_t ids[ITEMS][MOST];
    gqac_step_item items[ITEMS];
    slot *slots[ITEMS];
    int n = 0;
    for (int64_t wanted = 1 + any(ITEMS), i = any(SLOTS); n < wanted; i += 1 + any(SLOTS / ITEMS)) {
        slot *s = &x.slots[i % SLOTS];
        const int64_t space = x.most - s->n, count = 1 + any(any(3) ? 8 : 60);
        if (i >= 2 * SLOTS)
            break;
        if (!s->sequence || space < count || (n && s <= slots[n - 1]))
            continue;
        rig_letters_of(ids[n], count, (uint64_t)any(4));
        items[n] = (gqac_step_item){.size = sizeof *items,
                                    .sequence = s->sequence,
                                    .tokens = ids[n],
                                    .count = count,
                                    .n_logits = 1};
        slots[n++] = s;
    }
    if (!n)
        return;
    x.polls = polls;
    const gqac_status status = gqac_step(x.rig.context, n, items, &diag);
    x.polls = -1;
    if (status != GQAC_OK)
        for (int i = 0; i < n; i++)
            require_unchanged(slots[i]);
    x.aborted += status == GQAC_ABORTED;
    if (status == GQAC_ABORTED || !succeeded(status))
        return;
    for (int i = 0; i < n; i++) {
        memcpy(slots[i]->ids + slots[i]->n, ids[i], (size_t)items[i].count * sizeof **ids);
        slots[i]->n += items[i].count;
        x.tokens += items[i].count;
        output(slots[i], i);
    }
}

/* ---- operations -------------------------------------------------------------- */

static void extend(void) {
    extend_some(-1);
}

static void extend_and_abort(void) {
    extend_some(any(4));
}

static void open_empty(void) {
    static const char *const kinds[] = {"contiguous", "paged", "windowed", "quantised",
                                        "quantised4"};
    slot *s = empty_slot();
    gqac_sequence_options options;
    gqac_sequence *made = NULL;
    gqac_sequence_options_init(&options);
    options.kv = kinds[any(5)];
    if (s && succeeded(gqac_sequence_create(x.rig.program, &options, &made, &diag)))
        put(s, made);
}

/* Opens a prompt through the store; many prompts have common beginnings. */
static void open_prompt(void) {
    int64_t ids[MOST], reused = 0;
    const int64_t n = 2 + any(x.most - 2), common = any(n);
    slot *s = empty_slot();
    gqac_sequence *made = NULL;
    rig_letters_of(ids, common, (uint64_t)any(8));
    rig_letters_of(ids + common, n - common, (uint64_t)any(100));
    if (!s ||
        !succeeded(gqac_store_open(x.store, any_tenant(), ids, n, NULL, &made, &reused, &diag)))
        return;
    put(s, made);
    CU_ASSERT_FATAL(s->n == reused && !memcmp(s->ids, ids, (size_t)reused * sizeof *ids));
    if (!succeeded(gqac_sequence_append(x.rig.context, made, ids + reused, n - reused, 1, &diag)))
        return; /* `succeeded` may have freed it */
    memcpy(s->ids, ids, (size_t)n * sizeof *ids);
    s->n = n;
    x.tokens += n - reused;
    output(s, 0);
}

static void fork_one(void) {
    const slot *from = used_slot();
    slot *s = empty_slot();
    gqac_sequence *made = NULL;
    if (from && s && succeeded(gqac_sequence_fork(from->sequence, &made, &diag)))
        put(s, made);
}

/* Rewinds to any length, in a windowed sequence only by up to 64 tokens. */
static void rewind_one(void) {
    slot *s = used_slot();
    if (!s)
        return;
    const bool windowed = !strcmp(gqac_sequence_kind(s->sequence), "windowed");
    const int64_t length = any(s->n + 1);
    const gqac_status status = gqac_sequence_rewind(s->sequence, length, &diag);
    if (status == GQAC_OK)
        s->n = length;
    CU_ASSERT_FATAL(status == GQAC_OK || (windowed && status == GQAC_OUT_OF_RANGE));
    require_unchanged(s);
}

static void drop_one(void) {
    drop(any_slot());
}

static void take_snapshot(void) {
    const slot *s = used_slot();
    gqac_snapshot **to = &x.snapshots[any(SNAPSHOTS)], *made = NULL;
    if (!s || !succeeded(gqac_snapshot_take(s->sequence, &made, &diag)))
        return;
    gqac_snapshot_free(*to);
    *to = made;
}

static void restore_snapshot(void) {
    const gqac_snapshot *from = x.snapshots[any(SNAPSHOTS)];
    slot *s = empty_slot();
    gqac_sequence *made = NULL;
    if (s && from && succeeded(gqac_snapshot_restore(from, NULL, &made, &diag)))
        put(s, made);
}

static void save_and_load(void) {
    const slot *from = used_slot();
    slot *s = empty_slot();
    gqac_sequence *made = NULL;
    if (!from || !s)
        return;
    const size_t bytes = gqac_sequence_save_bytes(from->sequence);
    void *data = malloc(bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_save(from->sequence, data, bytes, &diag), GQAC_OK);
    const gqac_status status = gqac_sequence_load(x.rig.program, NULL, data, bytes, &made, &diag);
    free(data);
    if (succeeded(status))
        put(s, made);
}

static void add_to_store(void) {
    const slot *s = used_slot();
    if (s)
        (void)succeeded(gqac_store_add(x.store, any_tenant(), s->sequence, &diag));
}

static void save_to_folder(void) {
    const slot *s = used_slot();
    if (s)
        (void)succeeded(gqac_store_save(x.store, any_tenant(), s->sequence, &diag));
}

/* Mostly evicts only a part, so that memory stays near its budget. */
static void evict(void) {
    evict_to(any(500) ? 63 : 0);
}

/* ---- requests ---------------------------------------------------------------- */

/* Some sequences of ended requests are continued in a slot. */
static void end_request(void *arg, const gqac_request_end *e) {
    gqac_sequence *made = NULL;
    slot *s = any(4) ? NULL : empty_slot();
    rig_end(arg, e);
    if (s && e->sequence && gqac_sequence_fork(e->sequence, &made, &diag) == GQAC_OK)
        put(s, made);
}

static void submit(void) {
    client *c = &x.clients[any(REQUESTS)];
    const slot *from = any(3) ? NULL : used_slot();
    const int64_t n = 1 + any(120), common = any(n);
    if (c->number)
        return;
    *c = (client){.eos = rig_letters[0]};
    if (from && from->n + n + 32 < x.most &&
        !strcmp(gqac_sequence_kind(from->sequence), "contiguous")) {
        c->n_from = from->n;
        memcpy(c->list, from->ids, (size_t)from->n * sizeof *c->list);
    }
    rig_letters_of(c->list + c->n_from, common, (uint64_t)any(8));
    rig_letters_of(c->list + c->n_from + common, n - common, (uint64_t)any(100));
    rig_prepare(c, c->n_from + n, any(32));
    c->request.from = c->n_from ? from->sequence : NULL;
    c->request.on_end = end_request;
    c->request.priority = (int)any(3);
    c->request.tenant = any_tenant();
    c->request.n_eos = !any(3);
    c->request.eos = &c->eos;
    c->sampling.sample = any(2);
    c->sampling.seed = (uint64_t)any(1000);
    rig_submit(x.scheduler, c);
}

static void cancel(void) {
    client *c = &x.clients[any(REQUESTS)];
    if (c->number)
        CU_ASSERT(gqac_scheduler_cancel(x.scheduler, c->number));
}

/* Counts the ids of an ended request as outputs. If one of them is due for comparison, all are
 * compared. */
static void collect(client *c) {
    const int64_t before = x.outputs / EVERY;
    x.outputs += c->n - c->n_prompt;
    x.tokens += c->end.computed_tokens;
    x.failed += c->end.finish == GQAC_FINISH_FAILED;
    CU_ASSERT_FATAL(c->end.finish != GQAC_FINISH_FAILED || c->status == GQAC_CAPACITY);
    if (x.outputs / EVERY != before)
        x.compared += rig_compare(&x.oracle, c);
    c->number = 0;
}

static void schedule(void) {
    const gqac_status status = gqac_scheduler_step(x.scheduler, NULL, &diag);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    for (int i = 0; i < REQUESTS; i++)
        if (x.clients[i].number && x.clients[i].ends)
            collect(&x.clients[i]);
}

static const struct operation {
    int share; /* of 200 */
    void (*run)(void);
} operations[] = {
    {60, extend},       {4, extend_and_abort}, {8, open_empty},
    {12, open_prompt},  {10, fork_one},        {12, rewind_one},
    {10, drop_one},     {6, take_snapshot},    {6, restore_snapshot},
    {2, save_and_load}, {2, add_to_store},     {1, save_to_folder},
    {1, evict},         {16, submit},          {4, cancel},
    {46, schedule},
};

static void operate(void) {
    int64_t draw = any(200);
    const struct operation *o = operations;
    for (; draw >= o->share; o++)
        draw -= o->share;
    x.operations++;
    o->run();
    CU_ASSERT_FATAL(gqac_program_memory_used(x.rig.program) <= BUDGET);
}

/* ---- the run ------------------------------------------------------------------- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double resident(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CU_ASSERT_FATAL(f && fscanf(f, "%*d %ld", &pages) == 1);
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void add_point(line *l, double t, double y) {
    if (l->n == 0)
        l->first = t;
    l->last = t;
    l->n++, l->t += t, l->y += y, l->tt += t * t, l->ty += t * y;
}

static double slope(const line *l) {
    const double d = l->n * l->tt - l->t * l->t;
    return d > 0 ? (l->n * l->ty - l->t * l->y) / d : 0;
}

static void add_memory(memory *m, double t) {
    const struct mallinfo2 now = mallinfo2();
    add_point(&m->given, t, (double)(now.uordblks + now.hblkhd));
    add_point(&m->kept, t, (double)now.fordblks);
    add_point(&m->resident, t, resident());
}

static double mean(const line *l) {
    return l->y / l->n / MIB;
}

static void print_minute(double t, const memory *m) {
    printf("  %3.0f min: %.1f MiB resident, %.1f given, %.1f kept, %.1f MiB in the budget, %zu "
           "allocations, %lld operations, %lld tokens, %lld compared, %lld differ\n",
           t / 60, mean(&m->resident), mean(&m->given), mean(&m->kept),
           (double)gqac_program_memory_used(x.rig.program) / MIB, gqac_alloc_live(),
           (long long)x.operations, (long long)x.tokens, (long long)x.compared,
           (long long)x.differing);
    fflush(stdout);
}

/* Works for this many seconds, and for enough operations that some outputs are compared. Returns
 * the memory after the first tenth of the time. */
static memory work(double seconds) {
    const double began = now(), every = seconds > 600 ? 1 : seconds / 600;
    memory all = {0}, minute = {0};
    for (double t = 0, sampled = 0; t < seconds || x.operations < 500; t = now() - began) {
        operate();
        if (t - sampled < every)
            continue;
        sampled = t;
        if (t > seconds / 10)
            add_memory(&all, t);
        add_memory(&minute, t);
        if (t - minute.given.first >= 60) {
            print_minute(t, &minute);
            minute = (memory){0};
        }
    }
    return all;
}

static bool abort_step(void *arg) {
    (void)arg;
    return x.polls >= 0 && x.polls-- == 0;
}

static void open_all(const char *model, uint64_t seed) {
    gqac_store_options store;
    const gqac_monitor monitor = {.size = sizeof monitor, .abort = abort_step};
    memset(&x, 0, sizeof x);
    x.state = seed;
    x.polls = -1;
    x.oracle = rig_open(model, 0, 1);
    x.rig = rig_open(model, BUDGET, 2);
    x.most = gqac_program_max_tokens(x.rig.program);
    x.most = x.most < MOST ? x.most : MOST;
    snprintf(x.folder, sizeof x.folder, "/tmp/gqac-soak-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(x.folder));
    gqac_store_options_init(&store);
    store.budget = STORE;
    store.tenant_budget = STORE * 3 / 4;
    store.folder = x.folder;
    store.folder_budget = FILES;
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(x.rig.program, &store, &x.store, &diag), GQAC_OK);
    x.scheduler = rig_drafting(&x.rig, 96, 12, x.store, DRAFTS);
    CU_ASSERT_EQUAL(gqac_context_set_monitor(x.rig.context, &monitor, NULL, &diag), GQAC_OK);
}

static void close_all(void) {
    int64_t removed = 0;
    rig_finish(x.scheduler);
    schedule(); /* collects the last requests */
    gqac_scheduler_free(x.scheduler);
    for (int i = 0; i < SLOTS; i++)
        drop(&x.slots[i]);
    for (int i = 0; i < SNAPSHOTS; i++)
        gqac_snapshot_free(x.snapshots[i]);
    gqac_store_free(x.store);
    CU_ASSERT_EQUAL(gqac_store_folder_clean(x.folder, 1, &removed, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(rmdir(x.folder), 0);
    rig_close(&x.rig);
    rig_close(&x.oracle);
}

static double growth(const line *l) {
    return slope(l) * (l->last - l->first);
}

static void print_line(const char *what, const line *l) {
    printf("  %s: %.1f MiB on average, slope %+.0f KiB/h (%.0f points in %.0f s)\n", what, mean(l),
           slope(l) * 3600 / 1024, l->n, l->last - l->first);
}

static void print_all(const char *model, const memory *m) {
    const gqac_scheduler_statistics s = rig_statistics(x.scheduler);
    gqac_store_statistics t = {.size = sizeof t};
    CU_ASSERT_EQUAL(gqac_store_get_statistics(x.store, &t, &diag), GQAC_OK);
    printf("  %s: %lld operations, %lld tokens, %lld shortages of memory, %lld aborted steps\n",
           model, (long long)x.operations, (long long)x.tokens, (long long)x.shortages,
           (long long)x.aborted);
    printf("  requests: %lld ended, %lld of them for lack of memory, %lld preemptions\n",
           (long long)s.ended, (long long)x.failed, (long long)s.preemptions);
    printf("  drafts: %lld computed, %lld accepted, of %lld ids\n", (long long)s.drafted_tokens,
           (long long)s.accepted_tokens, (long long)s.new_tokens);
    CU_ASSERT(s.accepted_tokens > 0 || gqac_scheduler_no_drafts(x.rig.program));
    printf("  store: %lld hits, %lld misses, %lld evictions, %lld files saved, %lld loaded\n",
           (long long)t.hits, (long long)t.misses, (long long)t.evictions, (long long)t.saved_files,
           (long long)t.loaded_files);
    printf("  %lld outputs, %lld compared, %lld with other bits\n", (long long)x.outputs,
           (long long)x.compared, (long long)x.differing);
    print_line("resident memory", &m->resident);
    print_line("given out by malloc", &m->given);
    print_line("freed, but kept by malloc", &m->kept);
}

/* Sanitizers keep freed memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FREES = 0 };
#else
enum { FREES = 1 };
#endif

static void soak_model(const char *model) {
    const char *seed = getenv("GQAC_TEST_SEED"), *time = getenv("GQAC_TEST_SECONDS");
    const double seconds = time ? strtod(time, NULL) : unit_full() ? 30 : 0.5;
    const size_t live = gqac_alloc_live();
    open_all(model, seed ? strtoull(seed, NULL, 0) : 1);
    const memory m = work(seconds);
    print_all(model, &m);
    CU_ASSERT(x.compared > 0);
    CU_ASSERT_EQUAL(x.differing, 0);
    if (FREES && seconds >= 3600) { /* in a short run, the memory in use is still growing */
        CU_ASSERT(growth(&m.given) < 8 * MIB);
        CU_ASSERT(growth(&m.resident) < 8 * MIB);
    }
    close_all();
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}

static void attention(void) {
    soak_model(LLAMA);
}

static void states(void) {
    soak_model("test/models/qwen3.5/model.onnx");
}

static const unit_case cases[] = {
    {"attention only", attention},
    {"attention and states", states},
};

int main(int argc, char **argv) {
    /* The initial value. By default the threshold rises when a mapped block is freed; then slabs
     * move to the heap, over hours, and free memory between them stays resident. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    return unit_run("sched/soak", cases, sizeof cases / sizeof *cases, argc, argv);
}
