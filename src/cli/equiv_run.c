/* Running one plan of `gqac equiv` and comparing its bits with the reference. */
#include <stdlib.h>
#include <string.h>

#include "cli/compare.h"
#include "cli/equiv.h"
#include "cli/tokens.h"

/* The state of one plan run. */
typedef struct attempt {
    equiv *e;
    int plan;
    gqac_context *context;
    gqac_sequence **sequences; /* by row */
    int64_t **chunks;          /* by row */
    int *n_chunks;
    int64_t *done; /* tokens fed, by row */
    int *next;     /* next chunk, by row */
    /* one call */
    gqac_sequence **active;
    int *row_of;
    int64_t *counts, *positions, *tokens;
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
    const double relative = compare_tensors(actual, expected).relative;
    if (relative > a->e->relative)
        a->e->relative = relative;
}

static void compare_logits(attempt *a, int b, int64_t position, const float *actual) {
    equiv *e = a->e;
    const equiv_row *row = &e->rows[b];
    const float *expected = row->logits + position * e->vocabulary;
    const size_t bytes = (size_t)e->vocabulary * sizeof *actual;
    e->compared += e->vocabulary;
    if (!memcmp(actual, expected, bytes))
        return;
    const gqac_tensor x = {
        .dtype = GQAC_F32, .rank = 1, .dims = {e->vocabulary}, .data = (void *)(uintptr_t)actual};
    gqac_tensor y = x;
    y.data = (void *)(uintptr_t)expected;
    note_distance(a, &x, &y);
    bool told = false;
    for (int64_t v = 0; v < e->vocabulary; v++) {
        if (!memcmp(&actual[v], &expected[v], sizeof *actual))
            continue;
        e->differing++;
        if (!told)
            note(a, position, -1, "logits", v, (double)actual[v], (double)expected[v]);
        told = true;
    }
}

static void compare_pair(attempt *a, int b, int k, const char *actual, const char *expected) {
    const gqac_kv_pair *p = &a->e->pairs[k];
    const size_t width = (size_t)gqac_dtype_bits(p->dtype) / 8;
    const int64_t n = gqac_kv_pair_rows(p, a->e->rows[b].n), count = p->heads * n * p->head_size;
    gqac_tensor x = {
        .dtype = p->dtype, .rank = 1, .dims = {count}, .data = (void *)(uintptr_t)actual};
    gqac_tensor y = {
        .dtype = p->dtype, .rank = 1, .dims = {count}, .data = (void *)(uintptr_t)expected};
    a->e->compared += count;
    if (!memcmp(actual, expected, (size_t)count * width))
        return;
    note_distance(a, &x, &y);
    for (int64_t i = 0; i < count; i++)
        if (memcmp(actual + (size_t)i * width, expected + (size_t)i * width, width)) {
            a->e->differing++;
            note(a, p->rows ? a->e->rows[b].n - 1 : i / p->head_size % n, equiv_layer(a->e, k),
                 p->past, i, gqac_tensor_get(&x, i), gqac_tensor_get(&y, i));
        }
}

static gqac_status compare_kv(attempt *a, int b) {
    equiv *e = a->e;
    for (int k = 0; k < e->n_pairs; k++) {
        const gqac_kv_pair *p = &e->pairs[k];
        const size_t bytes = equiv_pair_bytes(p, e->rows[b].n);
        char *actual = malloc(bytes + 1);
        if (!actual)
            return cli_fail(e->c, GQAC_NO_MEMORY, "out of memory");
        gqac_status status =
            gqac_sequence_export(a->sequences[b], p->past, actual, bytes, &e->c->diag);
        if (status == GQAC_OK)
            compare_pair(a, b, k, actual, e->rows[b].kv[k]);
        free(actual);
        if (status != GQAC_OK)
            return status;
    }
    return GQAC_OK;
}

/* ---- feeding ------------------------------------------------------------- */

/* One call with the next chunk of every row that has one; false when all are done. */
static gqac_status feed(attempt *a, bool *more) {
    equiv *e = a->e;
    int n = 0;
    int64_t total = 0;
    for (int b = 0; b < e->batch; b++) {
        if (a->next[b] == a->n_chunks[b])
            continue;
        const int64_t count = a->chunks[b][a->next[b]++];
        a->active[n] = a->sequences[b];
        a->row_of[n] = b;
        a->positions[n] = a->done[b];
        a->counts[n++] = count;
        memcpy(a->tokens + total, e->rows[b].ids + a->done[b], (size_t)count * sizeof *a->tokens);
        total += count;
    }
    *more = n > 0;
    if (!n)
        return GQAC_OK;
    gqac_status status =
        gqac_step(a->context, n, a->active, a->tokens, a->counts, a->positions, &e->c->diag);
    for (int i = 0; status == GQAC_OK && i < n; i++) {
        const int b = a->row_of[i];
        int64_t rows = 0, vocabulary = 0;
        const float *logits = gqac_context_logits(a->context, i, &rows, &vocabulary);
        a->done[b] += a->counts[i];
        for (int64_t j = 0; j < rows; j++)
            compare_logits(a, b, a->done[b] - rows + j, logits + j * vocabulary);
    }
    return status;
}

/* --via prefix: what the first call computed goes out as past tensors and into fresh sequences. */
static gqac_status reopen(attempt *a, int b, const char *kv) {
    equiv *e = a->e;
    const gqac_sequence_options options = {
        .size = sizeof options, .kv = kv, .final_length = e->rows[b].n};
    const int64_t length = gqac_sequence_length(a->sequences[b]);
    gqac_sequence *fresh = NULL;
    gqac_tensor *tensors = calloc((size_t)e->n_pairs + 1, sizeof *tensors);
    const char **names = calloc((size_t)e->n_pairs + 1, sizeof *names);
    gqac_status status =
        tensors && names ? GQAC_OK : cli_fail(e->c, GQAC_NO_MEMORY, "out of memory");
    for (int k = 0; status == GQAC_OK && k < e->n_pairs; k++) {
        const gqac_kv_pair *p = &e->pairs[k];
        names[k] = p->past;
        tensors[k] =
            (gqac_tensor){.dtype = p->dtype,
                          .rank = 4,
                          .dims = {1, p->heads, gqac_kv_pair_rows(p, length), p->head_size}};
        tensors[k].data = malloc(gqac_tensor_bytes(&tensors[k]) + 1);
        status = tensors[k].data ? gqac_sequence_export(a->sequences[b], p->past, tensors[k].data,
                                                        gqac_tensor_bytes(&tensors[k]), &e->c->diag)
                                 : cli_fail(e->c, GQAC_NO_MEMORY, "out of memory");
    }
    if (status == GQAC_OK)
        status = gqac_sequence_create(e->program, &options, &fresh, &e->c->diag);
    if (status == GQAC_OK)
        status = gqac_sequence_import(fresh, e->n_pairs, names, tensors, &e->c->diag);
    if (status == GQAC_OK) {
        gqac_sequence_free(a->sequences[b]);
        a->sequences[b] = fresh;
        fresh = NULL;
    }
    gqac_sequence_free(fresh);
    for (int k = 0; tensors && k < e->n_pairs; k++)
        free(tensors[k].data);
    free(tensors);
    free((void *)names);
    return status;
}

static gqac_status feed_all(attempt *a, const char *kv) {
    bool more = true;
    for (int call = 0; more; call++) {
        gqac_status status = feed(a, &more);
        for (int b = 0;
             status == GQAC_OK && call == 0 && a->e->via == EQUIV_PREFIX && b < a->e->batch; b++)
            status = reopen(a, b, kv);
        if (status != GQAC_OK)
            return status;
    }
    for (int b = 0; b < a->e->batch; b++) {
        gqac_status status = compare_kv(a, b);
        if (status != GQAC_OK)
            return status;
    }
    return GQAC_OK;
}

/* ---- setting up ---------------------------------------------------------- */

/* Row 0 follows the plan; mates cut their tokens at random, differently in every plan. Via decode
 * keeps the first chunk and feeds the rest one by one. */
static gqac_status make_chunks(attempt *a, int b) {
    const equiv *e = a->e;
    const equiv_plan *plan = &e->plans[a->plan];
    const int64_t n = e->rows[b].n;
    int64_t *chunks = calloc((size_t)n, sizeof *chunks);
    uint64_t state = (uint64_t)a->plan * 1000 + (uint64_t)b;
    if (!chunks)
        return cli_fail(e->c, GQAC_NO_MEMORY, "out of memory");
    a->chunks[b] = chunks;
    int count = 0;
    if (b == 0) {
        memcpy(chunks, plan->chunks, (size_t)plan->n * sizeof *chunks);
        count = plan->n;
    } else {
        for (int64_t left = n; left > 0; left -= chunks[count++])
            chunks[count] = 1 + (int64_t)(tokens_random(&state) % (uint64_t)left);
    }
    if (e->via == EQUIV_DECODE) {
        int64_t left = n - chunks[0];
        for (count = 1; left > 0; left--)
            chunks[count++] = 1;
    }
    a->n_chunks[b] = count;
    return GQAC_OK;
}

static gqac_status set_up(attempt *a, const char *kv) {
    equiv *e = a->e;
    const size_t n = (size_t)e->batch;
    int64_t total = 0;
    for (int b = 0; b < e->batch; b++)
        total += e->rows[b].n;
    a->sequences = calloc(n, sizeof *a->sequences);
    a->chunks = calloc(n, sizeof *a->chunks);
    a->n_chunks = calloc(n, sizeof *a->n_chunks);
    a->done = calloc(n, sizeof *a->done);
    a->next = calloc(n, sizeof *a->next);
    a->active = calloc(n, sizeof *a->active);
    a->row_of = calloc(n, sizeof *a->row_of);
    a->counts = calloc(n, sizeof *a->counts);
    a->positions = calloc(n, sizeof *a->positions);
    a->tokens = calloc((size_t)total, sizeof *a->tokens);
    if (!a->sequences || !a->chunks || !a->n_chunks || !a->done || !a->next || !a->active ||
        !a->row_of || !a->counts || !a->positions || !a->tokens)
        return cli_fail(e->c, GQAC_NO_MEMORY, "out of memory");
    for (int b = 0; b < e->batch; b++) {
        const gqac_sequence_options options = {
            .size = sizeof options, .kv = kv, .final_length = e->rows[b].n};
        gqac_status status =
            gqac_sequence_create(e->program, &options, &a->sequences[b], &e->c->diag);
        if (status == GQAC_OK)
            status = make_chunks(a, b);
        if (status != GQAC_OK)
            return status;
    }
    return GQAC_OK;
}

static void tear_down(attempt *a) {
    for (int b = 0; b < a->e->batch; b++) {
        if (a->sequences)
            gqac_sequence_free(a->sequences[b]);
        if (a->chunks)
            free(a->chunks[b]);
    }
    void *const arrays[] = {
        (void *)a->sequences, (void *)a->chunks, a->n_chunks, a->done,      a->next,
        (void *)a->active,    a->row_of,         a->counts,   a->positions, a->tokens};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
}

gqac_status equiv_run_plan(equiv *e, int p, gqac_context *context, const char *kv) {
    attempt a = {.e = e, .plan = p, .context = context};
    gqac_status status = set_up(&a, kv);
    if (status == GQAC_OK)
        status = feed_all(&a, kv);
    tear_down(&a);
    if (status == GQAC_OK)
        e->ran++;
    if (a.has_best && !e->has_first) {
        e->has_first = true;
        e->first = a.best;
    }
    return status;
}
