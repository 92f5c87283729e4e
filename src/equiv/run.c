/* Running one plan of a proof and comparing its bits with the reference. */
#include <string.h>

#include "base/alloc.h"
#include "equiv/equiv_impl.h"

/* The state of one plan run. */
typedef struct attempt {
    equiv *e;
    int plan;
    const equiv_run *where;
    gqac_context *context;     /* that of the sequences */
    gqac_sequence **sequences; /* by row */
    gqac_store **stores;       /* that the sequences continue, by row */
    int64_t *reused;           /* number of cached tokens that a hit reused, by row */
    uint64_t *state;           /* of random numbers, by row */
    int64_t *done;             /* tokens computed, by row */
    int *calls;                /* in which the row took part, by row */
    int *changes;              /* rewinds and forks, by row */
    /* one call */
    gqac_step_item *items;
    int *row_of;
    equiv_first best;
    bool has_best;
} attempt;

/* ---- comparing ----------------------------------------------------------- */

/* KV of the lowest layer comes first at one position, the logits last. */
static void note(attempt *a, int64_t position, int layer, const char *what, int64_t index,
                 double actual, double expected) {
    const int order = layer < 0 ? 1 << 30 : layer;
    const int best = a->best.layer < 0 ? 1 << 30 : a->best.layer;
    if (a->has_best &&
        (position > a->best.position || (position == a->best.position && order >= best)))
        return;
    a->has_best = true;
    a->best = (equiv_first){.plan = a->plan,
                            .position = position,
                            .index = index,
                            .layer = layer,
                            .what = what,
                            .actual = actual,
                            .expected = expected};
}

static void note_distance(attempt *a, const gqac_tensor *actual, const gqac_tensor *expected) {
    const double relative = gqac_compare(actual, expected).relative;
    if (relative > a->e->report.relative)
        a->e->report.relative = relative;
}

static void compare_logits(attempt *a, int b, int64_t position, const float *actual) {
    equiv *e = a->e;
    const equiv_row *row = &e->rows[b];
    const float *expected = row->logits + position * e->vocabulary;
    const size_t bytes = (size_t)e->vocabulary * sizeof *actual;
    e->report.compared += e->vocabulary;
    if (!memcmp(actual, expected, bytes))
        return;
    const gqac_tensor x = {
        .dtype = GQAC_F32, .rank = 1, .dims = {e->vocabulary}, .data = (void *)(uintptr_t)actual};
    gqac_tensor y = x;
    y.data = (void *)(uintptr_t)expected;
    note_distance(a, &x, &y);
    bool noted = false;
    for (int64_t v = 0; v < e->vocabulary; v++) {
        /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-*): the same bits are wanted */
        if (!memcmp(&actual[v], &expected[v], sizeof *actual))
            continue;
        e->report.differing++;
        if (!noted)
            note(a, position, -1, "logits", v, (double)actual[v], (double)expected[v]);
        noted = true;
    }
}

static void compare_pair(attempt *a, int b, int k, const gqac_tensor *actual,
                         const gqac_tensor *expected) {
    const gqac_kv_pair *p = &a->e->pairs[k];
    const size_t width = (size_t)gqac_dtype_bits(p->dtype) / 8;
    const char *x = actual->data, *y = expected->data;
    const int64_t n = actual->dims[2], count = gqac_tensor_count(actual);
    a->e->report.compared += count;
    if (!memcmp(x, y, gqac_tensor_bytes(actual)))
        return;
    note_distance(a, actual, expected);
    for (int64_t i = 0; i < count; i++)
        if (memcmp(x + (size_t)i * width, y + (size_t)i * width, width) != 0) {
            a->e->report.differing++;
            note(a, p->rows ? a->e->rows[b].n - 1 : i / p->head_size % n, equiv_layer(a->e, k),
                 p->past, i, gqac_tensor_get(actual, i), gqac_tensor_get(expected, i));
        }
}

static bool is_windowed(const gqac_sequence *sequence) {
    return !strcmp(gqac_sequence_kind(sequence), "windowed");
}

/* Zeros the rows of a past tensor that a windowed sequence of that length no longer has. */
static void clear_outside(const gqac_kv_pair *pair, gqac_tensor *past) {
    const int64_t n = past->dims[2], outside = pair->window ? n + 1 - pair->window : 0;
    const size_t head = gqac_tensor_bytes(past) / (size_t)past->dims[1];
    for (int64_t h = 0; outside > 0 && h < past->dims[1]; h++)
        memset((char *)past->data + (size_t)h * head, 0, head / (size_t)n * (size_t)outside);
}

/* Copies a past tensor of the reference, as a windowed sequence has it. */
static gqac_status copy_windowed(const attempt *a, int b, int k, gqac_tensor *copy) {
    const gqac_tensor *reference = &a->e->rows[b].kv[k];
    *copy = *reference;
    GQAC_TRY(gqac_tensor_alloc(copy, a->e->diag));
    if (gqac_tensor_bytes(reference))
        memcpy(copy->data, reference->data, gqac_tensor_bytes(reference));
    clear_outside(&a->e->pairs[k], copy);
    return GQAC_OK;
}

static gqac_status compare_kv(attempt *a, int b) {
    equiv *e = a->e;
    const bool windowed = is_windowed(a->sequences[b]);
    for (int k = 0; k < e->n_pairs; k++) {
        gqac_tensor actual = {0}, copy = {0};
        GQAC_TRY(gqac_sequence_past(a->sequences[b], &e->pairs[k], &actual, e->diag));
        const gqac_status status = windowed ? copy_windowed(a, b, k, &copy) : GQAC_OK;
        if (status == GQAC_OK)
            compare_pair(a, b, k, &actual, windowed ? &copy : &e->rows[b].kv[k]);
        gqac_tensor_free(&copy);
        gqac_tensor_free(&actual);
        GQAC_TRY(status);
    }
    return GQAC_OK;
}

/* ---- running ------------------------------------------------------------- */

/* Row 0 follows the plan; the other rows are cut at random, differently in every plan. Via decode
 * takes the first chunk of a plan and then single tokens. What is left after the last chunk of a
 * plan is computed in one more call; after a hit, these are the tokens that could not be reused. */
static int64_t next_chunk(attempt *a, int b) {
    const equiv_plan *plan = &a->e->plans[a->plan];
    const int64_t left = a->e->rows[b].n - a->done[b];
    const int call = a->calls[b]++;
    if (call > 0 && a->e->options.via == GQAC_EQUIV_DECODE)
        return 1;
    if (b == 0)
        return call < plan->n ? plan->chunks[call] : left;
    return 1 + (int64_t)(equiv_random(&a->state[b]) % (uint64_t)left);
}

enum { MOST_CHANGES = 3 }; /* of a row: rewinds make its run longer */

/* Rewinds a row. A windowed one may refuse, and then continues as it was. */
static gqac_status rewind_row(attempt *a, int b, int64_t length) {
    gqac_sequence *sequence = a->sequences[b];
    const gqac_status status = gqac_sequence_rewind(sequence, length, a->e->diag);
    if (status == GQAC_OK)
        a->done[b] = length;
    return status == GQAC_OUT_OF_RANGE && is_windowed(sequence) ? GQAC_OK : status;
}

/* Between calls a row other than row 0 may continue in a fork, or be rewound and computed again. */
static gqac_status fork_or_rewind(attempt *a, int b) {
    gqac_sequence *fork = NULL;
    const uint64_t drawn = equiv_random(&a->state[b]) % 4;
    if (b == 0 || a->e->options.via != GQAC_EQUIV_SPLIT || drawn > 1 ||
        a->changes[b] == MOST_CHANGES || !a->done[b])
        return GQAC_OK;
    a->changes[b]++;
    if (drawn == 0) {
        GQAC_TRY(gqac_sequence_fork(a->sequences[b], &fork, a->e->diag));
        gqac_sequence_free(a->sequences[b]);
        a->sequences[b] = fork;
        return GQAC_OK;
    }
    return rewind_row(a, b, (int64_t)(equiv_random(&a->state[b]) % (uint64_t)a->done[b]));
}

/* One call with the next chunk of every row that has one; false when all are done. */
static gqac_status call(attempt *a, bool *more) {
    equiv *e = a->e;
    const int64_t n_logits = gqac_program_last_logits(e->program) ? 1 : GQAC_LOGITS_ALL;
    int n = 0;
    for (int b = 0; b < e->batch; b++) {
        if (a->done[b] == e->rows[b].n)
            continue;
        const equiv_row *row = &e->rows[b];
        a->row_of[n] = b;
        a->items[n++] = (gqac_step_item){
            .size = sizeof *a->items,
            .sequence = a->sequences[b],
            .tokens = row->ids + a->done[b],
            .count = next_chunk(a, b),
            .n_logits = n_logits,
            .position = &a->done[b],
            .embeddings = row->embeddings ? row->embeddings + a->done[b] * e->embedding : NULL};
    }
    *more = n > 0;
    if (!n)
        return GQAC_OK;
    GQAC_TRY(gqac_step(a->context, n, a->items, e->diag));
    for (int i = 0; i < n; i++) {
        const int b = a->row_of[i];
        int64_t rows = 0, vocabulary = 0;
        const float *logits = gqac_context_logits(a->context, i, &rows, &vocabulary);
        a->done[b] += a->items[i].count;
        for (int64_t j = 0; j < rows; j++)
            compare_logits(a, b, a->done[b] - rows + j, logits + j * vocabulary);
    }
    for (int i = 0; i < n; i++)
        GQAC_TRY(fork_or_rewind(a, a->row_of[i]));
    return GQAC_OK;
}

static gqac_status create(attempt *a, int b, const char *kv, gqac_sequence **sequence) {
    equiv *e = a->e;
    const gqac_sequence_options options = {
        .size = sizeof options, .kv = kv, .final_length = e->rows[b].n};
    return gqac_sequence_create(e->program, &options, sequence, e->diag);
}

/* Via import: the past tensors that the first call made are imported into a new sequence. */
static gqac_status replace(attempt *a, int b, const char *kv) {
    gqac_sequence *fresh = NULL;
    GQAC_TRY(create(a, b, kv, &fresh));
    const gqac_status status = gqac_sequence_copy(a->sequences[b], 1, &fresh, a->e->diag);
    gqac_sequence_free(status == GQAC_OK ? a->sequences[b] : fresh);
    if (status == GQAC_OK)
        a->sequences[b] = fresh;
    return status;
}

static gqac_status run_calls(attempt *a, const char *kv) {
    bool more = true;
    for (int i = 0; more; i++) {
        GQAC_TRY(call(a, &more));
        for (int b = 0; i == 0 && a->e->options.via == GQAC_EQUIV_IMPORT && b < a->e->batch; b++)
            GQAC_TRY(replace(a, b, kv));
    }
    for (int b = 0; b < a->e->batch; b++)
        GQAC_TRY(compare_kv(a, b));
    return GQAC_OK;
}

/* ---- hits ---------------------------------------------------------------- */

static equiv_hit hit_of(const attempt *a, int b, int64_t length) {
    return (equiv_hit){.e = a->e,
                       .row = &a->e->rows[b],
                       .plan = a->plan,
                       .length = length,
                       .kv = a->where->kv,
                       .fresh = a->where->fresh,
                       .context = a->where->context};
}

/* Creates the sequence of a row with cached rows: of row 0 the first chunk of the plan, of others a
 * random number. */
static gqac_status open_hit(attempt *a, int b) {
    const uint64_t n = (uint64_t)a->e->rows[b].n;
    const int64_t length =
        b ? (int64_t)(equiv_random(&a->state[b]) % (n + 1)) : a->e->plans[a->plan].chunks[0];
    const equiv_hit hit = hit_of(a, b, length);
    const gqac_status status = equiv_hit_open(&hit, &a->stores[b], &a->sequences[b]);
    equiv_hit_clear(a->e);
    GQAC_TRY(status);
    a->done[b] = a->reused[b] = gqac_sequence_length(a->sequences[b]);
    a->calls[b] = 1;
    return GQAC_OK;
}

static gqac_status check_hits(const attempt *a) {
    for (int b = 0; b < a->e->batch; b++) {
        const equiv_hit hit = hit_of(a, b, a->reused[b]);
        GQAC_TRY(equiv_hit_check(&hit, a->sequences[b], a->reused[b]));
    }
    return GQAC_OK;
}

/* ---- setting up ---------------------------------------------------------- */

static gqac_status set_up(attempt *a, const char *kv) {
    equiv *e = a->e;
    const size_t n = (size_t)e->batch;
    a->sequences = gqac_calloc(n, sizeof *a->sequences);
    a->stores = gqac_calloc(n, sizeof *a->stores);
    a->reused = gqac_calloc(n, sizeof *a->reused);
    a->state = gqac_calloc(n, sizeof *a->state);
    a->done = gqac_calloc(n, sizeof *a->done);
    a->calls = gqac_calloc(n, sizeof *a->calls);
    a->changes = gqac_calloc(n, sizeof *a->changes);
    a->items = gqac_calloc(n, sizeof *a->items);
    a->row_of = gqac_calloc(n, sizeof *a->row_of);
    if (!a->sequences || !a->state || !a->done || !a->calls || !a->changes || !a->items ||
        !a->row_of || !a->stores || !a->reused)
        return gqac_diag_oom(e->diag, "a plan");
    for (int b = 0; b < e->batch; b++) {
        a->state[b] = (uint64_t)a->plan * 1000 + (uint64_t)b;
        GQAC_TRY(equiv_is_hit(e) ? open_hit(a, b) : create(a, b, kv, &a->sequences[b]));
    }
    return GQAC_OK;
}

static void tear_down(attempt *a) {
    for (int b = 0; a->sequences && b < a->e->batch; b++)
        gqac_sequence_free(a->sequences[b]);
    for (int b = 0; a->stores && b < a->e->batch; b++)
        gqac_store_free(a->stores[b]);
    void *const arrays[] = {(void *)a->sequences, (void *)a->stores, a->state,  a->done,  a->calls,
                            a->changes,           a->items,          a->row_of, a->reused};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        gqac_free(arrays[i]);
}

static gqac_status try_plan(attempt *a, const char *kv) {
    GQAC_TRY(set_up(a, kv));
    GQAC_TRY(run_calls(a, kv));
    return equiv_is_hit(a->e) ? check_hits(a) : GQAC_OK;
}

gqac_status equiv_run_plan(equiv *e, int p, const equiv_run *where) {
    attempt a = {
        .e = e, .plan = p, .where = where, .context = where->fresh ? where->fresh : where->context};
    const gqac_status status = try_plan(&a, where->kv);
    tear_down(&a);
    if (status == GQAC_OK)
        e->report.ran++;
    if (a.has_best)
        equiv_note_first(e, &a.best);
    return status;
}
