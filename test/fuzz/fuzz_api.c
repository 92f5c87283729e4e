/* The C API with hostile ids, lengths and orders of calls. An input is a program of small ops on a
 * few sequences, snapshots, a store and a scheduler.
 *
 * The test keeps a list of the tokens of each sequence. A call that fails must not change them; at
 * the end each sequence must compute the bits that a new one computes for the same tokens. */
#include "fuzz/fuzz.h"

#include <gqac/text.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 4, SNAPSHOTS = 2, MOST_TOKENS = 160, MOST_OPS = 48, MOST_PAIRS = 4 };

typedef struct tokens {
    int64_t n, ids[MOST_TOKENS + 1];
} tokens;

typedef struct machine {
    const uint8_t *at, *end;
    const gqac_program *program;
    gqac_context *context;
    gqac_store *store;
    gqac_scheduler *scheduler;
    gqac_sequence *sequences[SEQUENCES];
    tokens lists[SEQUENCES];
    gqac_snapshot *snapshots[SNAPSHOTS];
    tokens frozen[SNAPSHOTS];
    int64_t last_request, ended;
    gqac_diag diag;
} machine;

static unsigned take(machine *m) {
    return m->at < m->end ? *m->at++ : 0;
}

/* A number that callers get wrong: small, or from a table of extreme values. */
static int64_t take_number(machine *m) {
    static const int64_t ends[] = {-1,        INT64_MIN, INT64_MAX, INT32_MIN,
                                   INT32_MAX, 1LL << 32, 1LL << 40, -64};
    const unsigned b = take(m);
    return b < 192 ? b : ends[b % 8];
}

/* Ids: mostly those of the model, which has no row for some ids of its vocabulary. */
static int64_t take_ids(machine *m, int64_t ids[MOST_TOKENS]) {
    const unsigned b = take(m);
    const int64_t n = b % 8 == 7 ? b / 2 : b % 8;
    unsigned state = take(m);
    for (int64_t i = 0; i < n && i < MOST_TOKENS; i++) {
        state = state * 1103515245U + 12345U;
        ids[i] = state >> 16 & 0xff ? (int64_t)((state >> 24) % 3) : take_number(m);
    }
    return n < MOST_TOKENS ? n : MOST_TOKENS;
}

static gqac_status check(machine *m, gqac_status status) {
    return fuzz_check(status, &m->diag);
}

static void drop(machine *m, int i) {
    gqac_sequence_free(m->sequences[i]);
    m->sequences[i] = NULL;
    m->lists[i].n = 0;
}

/* Checks that the sequence has the tokens of its list. */
static void compare(machine *m, int i) {
    int64_t first, n;
    const tokens *list = &m->lists[i];
    if (!m->sequences[i])
        return;
    const int64_t *ids = gqac_sequence_ids(m->sequences[i], &first, &n);
    if (gqac_sequence_length(m->sequences[i]) != list->n || first < 0 || first + n != list->n)
        fuzz_broken("the length of a sequence");
    if (n && memcmp(ids, list->ids + first, (size_t)n * sizeof *ids) != 0)
        fuzz_broken("the ids of a sequence");
}

/* ---- the calls ----------------------------------------------------------- */

static void create(machine *m, int i) {
    static const char *const kinds[] = {NULL, "paged", "windowed", "quantised", " basic ", "x"};
    gqac_sequence_options options;
    gqac_sequence_options_init(&options);
    options.kv = kinds[take(m) % 6];
    options.capacity = take(m) % 4 ? 0 : take_number(m);
    options.final_length = take(m) % 4 ? 0 : take_number(m);
    drop(m, i);
    (void)check(m, gqac_sequence_create(m->program, &options, &m->sequences[i], &m->diag));
}

static void append(machine *m, int i) {
    int64_t ids[MOST_TOKENS];
    tokens *list = &m->lists[i];
    const int64_t n = take_ids(m, ids), wanted = take(m) % 4 ? GQAC_LOGITS_ALL : take_number(m);
    if (!m->sequences[i] || list->n + n > MOST_TOKENS)
        return;
    if (check(m, gqac_sequence_append(m->context, m->sequences[i], ids, n, wanted, &m->diag)) !=
        GQAC_OK)
        return;
    memcpy(list->ids + list->n, ids, (size_t)n * sizeof *ids);
    list->n += n;
}

/* Two items in one step; one may be wrong, or the same sequence. */
static void step(machine *m, int i) {
    int64_t ids[2][MOST_TOKENS], position = take_number(m);
    const int other = (int)(take(m) % SEQUENCES);
    const int which[2] = {i, other};
    gqac_step_item items[2];
    for (int k = 0; k < 2; k++) {
        const int64_t n = take_ids(m, ids[k]);
        items[k] = (gqac_step_item){.size = sizeof items[k],
                                    .sequence = m->sequences[which[k]],
                                    .tokens = ids[k],
                                    .count = n,
                                    .n_logits = k};
        if (m->lists[which[k]].n + n > MOST_TOKENS)
            return;
    }
    items[1].position = take(m) % 2 ? &position : NULL;
    if (check(m, gqac_step(m->context, 2, items, &m->diag)) != GQAC_OK)
        return;
    for (int k = 0; k < 2; k++) {
        tokens *list = &m->lists[which[k]];
        memcpy(list->ids + list->n, ids[k], (size_t)items[k].count * sizeof *ids[k]);
        list->n += items[k].count;
    }
}

static void rewind_to(machine *m, int i) {
    const int64_t length = take_number(m);
    if (!m->sequences[i])
        return;
    if (check(m, gqac_sequence_rewind(m->sequences[i], length, &m->diag)) == GQAC_OK)
        m->lists[i].n = length;
}

static void fork_to(machine *m, int i) {
    const int to = (int)(take(m) % SEQUENCES);
    if (!m->sequences[i] || to == i)
        return;
    drop(m, to);
    if (check(m, gqac_sequence_fork(m->sequences[i], &m->sequences[to], &m->diag)) == GQAC_OK)
        m->lists[to] = m->lists[i];
}

/* Copies rows by export and import, sometimes into a sequence that has tokens, or with a wrong
 * size.
 * */
static void import_to(machine *m, int i) {
    const int to = (int)(take(m) % SEQUENCES);
    const gqac_kv_pair *pairs;
    const int n = gqac_program_kv_pairs(m->program, &pairs);
    const int64_t wrong = take(m) % 4 ? 0 : take_number(m);
    const char *names[MOST_PAIRS];
    gqac_tensor rows[MOST_PAIRS] = {0};
    gqac_status status = GQAC_OK;
    if (!m->sequences[i] || !m->sequences[to] || n > MOST_PAIRS ||
        strcmp(gqac_sequence_kind(m->sequences[to]), "quantised") == 0 ||
        strcmp(gqac_sequence_kind(m->sequences[i]), "contiguous") != 0)
        return;
    for (int k = 0; k < n && status == GQAC_OK; k++) {
        const gqac_kv_pair *p = GQAC_AT(pairs, k);
        names[k] = p->past;
        rows[k] =
            (gqac_tensor){.dtype = p->dtype,
                          .rank = 4,
                          .dims = {1, p->heads, gqac_kv_pair_rows(p, m->lists[i].n), p->head_size}};
        status = gqac_tensor_alloc(&rows[k], &m->diag);
        if (status == GQAC_OK)
            status = check(m, gqac_sequence_export(m->sequences[i], p->past, rows[k].data,
                                                   gqac_tensor_bytes(&rows[k]), &m->diag));
    }
    if (wrong && wrong < rows[0].dims[2]) /* never more than the memory */
        rows[0].dims[2] = wrong;
    if (status == GQAC_OK &&
        check(m, gqac_sequence_import(m->sequences[to], n, names, rows, &m->diag)) == GQAC_OK) {
        if (rows[0].dims[2] != gqac_kv_pair_rows(GQAC_AT(pairs, 0), m->lists[i].n))
            fuzz_broken("tensors of different lengths were imported");
        m->lists[to] = m->lists[i];
    }
    for (int k = 0; k < n; k++)
        gqac_tensor_free(&rows[k]);
}

static void save_and_load(machine *m, int i) {
    const unsigned flip = take(m), bit = take(m);
    if (!m->sequences[i])
        return;
    const size_t bytes = gqac_sequence_save_bytes(m->sequences[i]);
    uint8_t *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    gqac_sequence *loaded = NULL;
    if (check(m, gqac_sequence_save(m->sequences[i], data, bytes, &m->diag)) != GQAC_OK)
        fuzz_broken("a sequence is not saved");
    if (flip)
        data[(flip * 257 + bit) % bytes] ^= (uint8_t)(1U << bit % 8);
    const gqac_status status =
        check(m, gqac_sequence_load(m->program, NULL, data, bytes, &loaded, &m->diag));
    if ((status == GQAC_OK) == (flip != 0))
        fuzz_broken("saved bytes are loaded though one bit has changed, or refused unchanged");
    if (status == GQAC_OK) {
        gqac_sequence_free(m->sequences[i]);
        m->sequences[i] = loaded;
    }
    free(data);
}

static void take_snapshot(machine *m, int i) {
    const unsigned s = take(m) % SNAPSHOTS;
    if (!m->sequences[i])
        return;
    gqac_snapshot_free(m->snapshots[s]);
    m->snapshots[s] = NULL;
    m->frozen[s] = m->lists[i];
    (void)check(m, gqac_snapshot_take(m->sequences[i], &m->snapshots[s], &m->diag));
}

static void restore(machine *m, int i) {
    const unsigned s = take(m) % SNAPSHOTS;
    gqac_sequence_options options;
    gqac_sequence_options_init(&options);
    options.capacity = take(m) % 4 ? 0 : take_number(m);
    options.final_length = take(m) % 4 ? 0 : take_number(m);
    if (!m->snapshots[s])
        return;
    drop(m, i);
    if (check(m, gqac_snapshot_restore(m->snapshots[s], &options, &m->sequences[i], &m->diag)) ==
        GQAC_OK)
        m->lists[i] = m->frozen[s];
}

static void open_store(machine *m, int i) {
    static const char *const tenants[] = {NULL, "", "a", "b"};
    int64_t reused = -1;
    tokens list;
    const unsigned from = take(m) % SEQUENCES;
    const char *tenant = tenants[take(m) % 4];
    list = m->lists[from];
    if (list.n == 0)
        list.n = take_ids(m, list.ids);
    drop(m, i);
    const gqac_status status = check(m, gqac_store_open(m->store, tenant, list.ids, list.n, NULL,
                                                        &m->sequences[i], &reused, &m->diag));
    if (status != GQAC_OK)
        return;
    if (reused < 0 || reused >= list.n)
        fuzz_broken("the number of reused tokens");
    m->lists[i] = list;
    m->lists[i].n = reused;
}

static void change_store(machine *m, int i) {
    const unsigned what = take(m) % 4;
    const tokens *list = &m->lists[i];
    if (what == 0 && m->sequences[i])
        (void)check(m, gqac_store_add(m->store, "a", m->sequences[i], &m->diag));
    else if (what == 1)
        gqac_store_evict(m->store, take_number(m));
    else if (what == 2)
        (void)check(m,
                    gqac_store_pin(m->store, "a", NULL, list->ids,
                                   list->n ? list->n : take_number(m) % 2, take(m) % 2, &m->diag));
    else if (gqac_store_match(m->store, "a", NULL, list->ids, list->n) > list->n)
        fuzz_broken("a match is longer than its ids");
}

static void request_ended(void *arg, const gqac_request_end *end) {
    machine *m = arg;
    m->ended++;
    if (end->finish == GQAC_FINISH_FAILED)
        (void)fuzz_check(end->diag->status, end->diag);
}

static void submit(machine *m, int i) {
    int64_t ids[MOST_TOKENS], number = 0;
    gqac_request request;
    const int64_t n = take_ids(m, ids);
    gqac_request_init(&request, ids, (size_t)n);
    request.max_new = take(m) % 8 ? take(m) % 8 : take_number(m);
    if (request.max_new > MOST_TOKENS)
        request.max_new = request.max_new > INT32_MAX ? request.max_new : MOST_TOKENS;
    request.priority = (int)(take(m) % 3);
    request.from = take(m) % 3 ? NULL : m->sequences[i];
    request.on_end = request_ended;
    request.arg = m;
    if (check(m, gqac_scheduler_submit(m->scheduler, &request, &number, &m->diag)) == GQAC_OK) {
        if (number <= m->last_request)
            fuzz_broken("the number of a request");
        m->last_request = number;
    }
}

static void schedule(machine *m, int i) {
    int64_t left;
    (void)i;
    for (unsigned n = take(m) % 8; n > 0; n--)
        (void)check(m, gqac_scheduler_step(m->scheduler, &left, &m->diag));
}

static void cancel(machine *m, int i) {
    (void)i;
    (void)gqac_scheduler_cancel(m->scheduler, take(m) % 2 ? m->last_request : take_number(m));
}

static void (*const calls[])(machine *m, int i) = {
    create,        append,  append,        append,     rewind_to,    fork_to,
    import_to,     step,    save_and_load, open_store, change_store, submit,
    take_snapshot, restore, schedule,      cancel,     drop};

/* ---- the bits at the end ------------------------------------------------- */

/* Appends id 1 to the sequence, and all of its tokens plus id 1 to a new one of its kind. */
static void compare_bits(machine *m, int i) {
    gqac_sequence *s = m->sequences[i], *solo = NULL;
    const int64_t one = 1;
    int64_t rows, width;
    float seen[64] = {0};
    gqac_sequence_options options;
    gqac_sequence_options_init(&options);
    if (!s || check(m, gqac_sequence_append(m->context, s, &one, 1, 1, &m->diag)) != GQAC_OK)
        return;
    const float *logits = gqac_context_logits(m->context, 0, &rows, &width);
    if (!logits || rows != 1 || width > 64)
        fuzz_broken("the logits of a step");
    memcpy(seen, logits, (size_t)width * sizeof *seen);
    m->lists[i].ids[m->lists[i].n] = 1;
    options.kv = gqac_sequence_kind(s);
    if (check(m, gqac_sequence_create(m->program, &options, &solo, &m->diag)) != GQAC_OK ||
        check(m, gqac_sequence_append(m->context, solo, m->lists[i].ids, m->lists[i].n + 1, 1,
                                      &m->diag)) != GQAC_OK)
        fuzz_broken("a new sequence refuses the tokens of another");
    logits = gqac_context_logits(m->context, 0, &rows, &width);
    if (memcmp(seen, logits, (size_t)width * sizeof *seen) != 0)
        fuzz_broken("the bits of a sequence");
    gqac_sequence_free(solo);
}

static void open_machine(machine *m) {
    gqac_store_options store;
    gqac_scheduler_options scheduler;
    gqac_store_options_init(&store);
    gqac_scheduler_options_init(&scheduler);
    store.budget = take(m) % 2 ? 0 : 40000;
    store.tenant_budget = take(m) % 2 ? 0 : 20000;
    scheduler.tokens = 1 + take(m) % 8;
    gqac_status status = gqac_context_create(m->program, 1, &m->context, &m->diag);
    if (status == GQAC_OK)
        status = gqac_store_create(m->program, &store, &m->store, &m->diag);
    scheduler.store = m->store;
    if (status == GQAC_OK)
        status = gqac_scheduler_create(m->context, &scheduler, &m->scheduler, &m->diag);
    if (status != GQAC_OK)
        fuzz_broken("the machine");
}

static void close_machine(machine *m, int64_t before) {
    for (int i = 0; i < SEQUENCES; i++) {
        compare_bits(m, i);
        gqac_sequence_free(m->sequences[i]);
    }
    gqac_scheduler_free(m->scheduler);
    if (m->ended != m->last_request)
        fuzz_broken("a request did not end");
    for (int i = 0; i < SNAPSHOTS; i++)
        gqac_snapshot_free(m->snapshots[i]);
    gqac_store_free(m->store);
    gqac_context_free(m->context);
    if (gqac_program_memory_used(m->program) != before)
        fuzz_broken("memory of a program is not given back");
}

static gqac_status run(const uint8_t *data, size_t size) {
    machine m = {.at = data, .end = data + size};
    m.program = fuzz_program((int)(take(&m) % FUZZ_PROGRAMS));
    const int64_t before = gqac_program_memory_used(m.program);
    open_machine(&m);
    for (int n = 0; m.at < m.end && n < MOST_OPS; n++) {
        const unsigned op = take(&m);
        calls[op % (sizeof calls / sizeof *calls)](&m, (int)(take(&m) % SEQUENCES));
        for (int i = 0; i < SEQUENCES; i++)
            compare(&m, i);
    }
    close_machine(&m, before);
    return GQAC_OK;
}

const fuzz_target fuzz_target_api = {"api", run, NULL};
