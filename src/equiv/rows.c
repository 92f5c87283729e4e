/* Plans, tokens and reference bits of a proof. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "equiv/equiv_impl.h"

enum { PLAN_SEED = 1, ID_SEED = 2 };
enum { TILE = 64, SHORT = 200 }; /* tokens */

static gqac_status no_memory(const equiv *e) {
    return gqac_diag_oom(e->diag, "a proof");
}

/* ---- plans --------------------------------------------------------------- */

static gqac_status set_plan(equiv *e, int p, const int64_t *chunks, int n) {
    e->plans[p].chunks = gqac_alloc((size_t)n * sizeof *chunks);
    if (!e->plans[p].chunks)
        return no_memory(e);
    memcpy(e->plans[p].chunks, chunks, (size_t)n * sizeof *chunks);
    e->plans[p].n = n;
    return GQAC_OK;
}

/* Every cut into two calls, the whole in one call, and token by token. */
static gqac_status plans_all(equiv *e, int64_t n, int64_t *scratch) {
    e->plans = gqac_calloc((size_t)n + 1, sizeof *e->plans);
    if (!e->plans)
        return no_memory(e);
    for (int64_t k = 1; k < n; k++)
        GQAC_TRY(set_plan(e, e->n_plans++, (int64_t[]){k, n - k}, 2));
    GQAC_TRY(set_plan(e, e->n_plans++, &n, 1));
    for (int64_t i = 0; i < n; i++)
        scratch[i] = 1;
    return set_plan(e, e->n_plans++, scratch, (int)n);
}

/* Hits of `n` tokens and the rest in one call: all lengths of short prompts, else those around
 * powers of two in blocks of 64. */
static gqac_status plans_hits(equiv *e, int64_t n, bool all) {
    const int64_t most = e->baked && e->n_baked < n ? e->n_baked : n; /* no hit is longer */
    e->plans = gqac_calloc((size_t)n + 1, sizeof *e->plans);
    if (!e->plans)
        return no_memory(e);
    for (int64_t k = 0; k <= most; k++) {
        const int64_t block = (k + 1) / TILE * TILE, blocks = block / TILE;
        const bool near = k - block <= 1 && (blocks & (blocks - 1)) == 0;
        if (all || near || k + 1 >= most)
            GQAC_TRY(set_plan(e, e->n_plans++, (int64_t[]){k, n - k}, k < n ? 2 : 1));
    }
    return GQAC_OK;
}

/* Chunks of random lengths; some plans are fine-grained, some coarse. */
static int random_chunks(int64_t n, uint64_t *state, int64_t *chunks) {
    const int64_t most = 1 + (int64_t)(equiv_random(state) % (uint64_t)n);
    int count = 0;
    for (int64_t left = n; left > 0; left -= chunks[count++]) {
        const int64_t bound = most < left ? most : left;
        chunks[count] = 1 + (int64_t)(equiv_random(state) % (uint64_t)bound);
    }
    return count;
}

static gqac_status plans_random(equiv *e, int64_t n, int64_t count, int64_t *scratch) {
    uint64_t state = PLAN_SEED;
    e->plans = gqac_calloc((size_t)count, sizeof *e->plans);
    if (!e->plans)
        return no_memory(e);
    for (; e->n_plans < count; e->n_plans++)
        GQAC_TRY(set_plan(e, e->n_plans, scratch, random_chunks(n, &state, scratch)));
    return GQAC_OK;
}

/* The given chunks, and a last one with the tokens that they leave. */
static gqac_status plans_given(equiv *e, int64_t n, int64_t *scratch) {
    int64_t sum = 0;
    int count = 0;
    for (; count < e->options.n_chunks; count++) {
        const int64_t chunk = e->options.chunks[count];
        if (chunk < 1 || chunk > n - sum)
            GQAC_FAIL(e->diag, GQAC_OUT_OF_RANGE,
                      "chunk %d has %lld tokens, but %lld of %lld are left", count,
                      (long long)chunk, (long long)(n - sum), (long long)n);
        scratch[count] = chunk;
        sum += chunk;
    }
    if (sum < n)
        scratch[count++] = n - sum;
    e->plans = gqac_calloc(1, sizeof *e->plans);
    if (!e->plans)
        return no_memory(e);
    e->n_plans = 1;
    return set_plan(e, 0, scratch, count);
}

static gqac_status plans_of(equiv *e, int64_t n, int64_t *scratch) {
    const gqac_equiv_options *o = &e->options;
    if (o->random)
        return plans_random(e, n, o->random, scratch);
    if (o->n_chunks)
        return plans_given(e, n, scratch);
    return equiv_is_hit(e)
               ? plans_hits(e, n, o->every_hit || n <= SHORT || (e->baked && e->n_baked <= SHORT))
               : plans_all(e, n, scratch);
}

gqac_status equiv_make_plans(equiv *e) {
    const int64_t n = e->rows[0].n;
    int64_t *scratch = gqac_calloc((size_t)n, sizeof *scratch);
    gqac_status status = scratch ? plans_of(e, n, scratch) : no_memory(e);
    gqac_free(scratch);
    return status;
}

/* ---- rows ---------------------------------------------------------------- */

/* Embeddings of n tokens between -1 and 1. */
static float *random_embeddings(uint64_t *state, int64_t n, int64_t width) {
    float *rows = gqac_calloc((size_t)n, (size_t)width * sizeof *rows);
    for (int64_t i = 0; rows && i < n * width; i++)
        rows[i] = (float)((int64_t)(equiv_random(state) >> 40) - (1 << 23)) * 0x1p-23f;
    return rows;
}

void gqac_random_ids(uint64_t seed, int64_t vocabulary, int64_t n, int64_t *ids) {
    for (int64_t i = 0; i < n && vocabulary > 0; i++)
        ids[i] = (int64_t)(equiv_random(&seed) % (uint64_t)vocabulary);
}

static gqac_status make_row(const equiv *e, equiv_row *row, int64_t n, const int64_t *ids,
                            uint64_t seed) {
    row->n = n;
    row->ids = gqac_calloc((size_t)n, sizeof *row->ids);
    row->logits = gqac_calloc((size_t)n * (size_t)e->vocabulary, sizeof *row->logits);
    row->kv = gqac_calloc((size_t)e->n_pairs + 1, sizeof *row->kv);
    if (e->embedding)
        row->embeddings = random_embeddings(&seed, n, e->embedding);
    if (!row->ids || !row->logits || !row->kv || (e->embedding && !row->embeddings))
        return no_memory(e);
    if (ids)
        memcpy(row->ids, ids, (size_t)n * sizeof *ids);
    else
        gqac_random_ids(seed, e->vocabulary, n, row->ids);
    for (int64_t i = 0; !ids && i < n && i < e->n_baked; i++)
        row->ids[i] = e->baked[i];
    return GQAC_OK;
}

gqac_status equiv_make_rows(equiv *e, int batch, const int64_t *ids, int64_t n) {
    e->batch = batch;
    e->rows = gqac_calloc((size_t)batch, sizeof *e->rows);
    if (!e->rows)
        return no_memory(e);
    for (int b = 0; b < batch; b++) {
        int64_t length = n - n * b / (batch + 1);
        GQAC_TRY(make_row(e, &e->rows[b], length < 1 ? 1 : length, b ? NULL : ids,
                          ID_SEED + (uint64_t)b));
    }
    if (e->options.embeddings)
        memcpy(e->rows->embeddings, e->options.embeddings,
               (size_t)(n * e->embedding) * sizeof(float));
    return GQAC_OK;
}

/* ---- reference ----------------------------------------------------------- */

static gqac_status reference_row(equiv *e, equiv_row *row, gqac_context *context,
                                 gqac_sequence *sequence) {
    for (int64_t i = 0; i < row->n; i++) {
        int64_t rows = 0, vocabulary = 0;
        const gqac_step_item item = {
            .size = sizeof item,
            .sequence = sequence,
            .tokens = row->ids + i,
            .count = 1,
            .n_logits = 1,
            .embeddings = row->embeddings ? row->embeddings + i * e->embedding : NULL};
        GQAC_TRY(gqac_step(context, 1, &item, e->diag));
        const float *logits = gqac_context_logits(context, 0, &rows, &vocabulary);
        memcpy(row->logits + i * vocabulary, logits, (size_t)vocabulary * sizeof *logits);
    }
    for (int k = 0; k < e->n_pairs; k++)
        GQAC_TRY(gqac_sequence_past(sequence, &e->pairs[k], &row->kv[k], e->diag));
    return GQAC_OK;
}

static gqac_status reference_rows(equiv *e, gqac_context *context, const char *kv) {
    for (int b = 0; b < e->batch; b++) {
        gqac_sequence *sequence = NULL;
        const gqac_sequence_options options = {
            .size = sizeof options, .kv = kv, .final_length = e->rows[b].n};
        GQAC_TRY(gqac_sequence_create(e->reference, &options, &sequence, e->diag));
        const gqac_status status = reference_row(e, &e->rows[b], context, sequence);
        gqac_sequence_free(sequence);
        GQAC_TRY(status);
    }
    return GQAC_OK;
}

gqac_status equiv_profile(const equiv *e, const char *kv, char *profile, size_t size) {
    gqac_sequence *sequence = NULL;
    const gqac_sequence_options options = {.size = sizeof options, .kv = kv};
    GQAC_TRY(gqac_sequence_create(e->program, &options, &sequence, e->diag));
    gqac_sequence_profile(sequence, profile, size);
    gqac_sequence_free(sequence);
    return GQAC_OK;
}

static void free_kv(equiv *e) {
    for (int b = 0; b < e->batch; b++)
        for (int k = 0; e->rows[b].kv && k < e->n_pairs; k++)
            gqac_tensor_free(&e->rows[b].kv[k]);
}

gqac_status equiv_reference(equiv *e, const char *kv) {
    char profile[sizeof e->profile];
    gqac_context *context = NULL;
    GQAC_TRY(equiv_profile(e, kv, profile, sizeof profile));
    if (!strcmp(profile, e->profile))
        return GQAC_OK;
    const bool same = !strcmp(profile, gqac_program_profile(e->program));
    *e->profile = '\0'; /* a failed run leaves no reference rows */
    free_kv(e);
    GQAC_TRY(equiv_context(e, e->reference, 1, &context));
    const gqac_status status = reference_rows(e, context, same ? NULL : kv);
    gqac_context_free(context);
    if (status == GQAC_OK)
        memcpy(e->profile, profile, sizeof profile);
    return status;
}

int equiv_layer(const equiv *e, int pair) {
    const char *digits = strpbrk(e->pairs[pair].past, "0123456789");
    const long layer = digits ? strtol(digits, NULL, 10) : pair;
    return layer <= INT32_MAX ? (int)layer : pair;
}

void equiv_free_rows(equiv *e) {
    if (e->rows)
        free_kv(e);
    for (int b = 0; e->rows && b < e->batch; b++) {
        gqac_free(e->rows[b].ids);
        gqac_free(e->rows[b].embeddings);
        gqac_free(e->rows[b].logits);
        gqac_free(e->rows[b].kv);
    }
    for (int p = 0; e->plans && p < e->n_plans; p++)
        gqac_free(e->plans[p].chunks);
    gqac_free(e->rows);
    gqac_free(e->plans);
}
