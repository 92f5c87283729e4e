/* The recurrence of LinearAttention. A tile of columns of the state of one head is one work item,
 * with all tokens of a sequence in order. */
#include "ops/recurrence.h"

#include <string.h>

#include "base/check.h"
#include "numerics/math.h"
#include "ops/kernel.h"
#include "ops/lengths.h"

enum { TILE = 32 }; /* columns of a state that are computed together */

/* Columns [from, from + width) of the state of one head, and the operands of one token. */
typedef struct part {
    float *m;     /* [dk][TILE] */
    float *k, *q; /* [dk] */
    float *gate;  /* exp(decay), [dk] */
    float v[TILE], beta;
    int64_t batch, head, from, width;
} part;

/* m = gate * m, and sum[j] = the sum over i of k[i] * m[i][j]. */
OP_BODY void decay_body(const recurrence *r, const part *t, float *restrict sum) {
    const bool gated = r->rule & RECURRENCE_GATED;
    float all[TILE] = {0};
    for (int64_t i = 0; i < r->dk; i++) {
        float *restrict m = t->m + i * TILE;
        for (int j = 0; gated && j < TILE; j++)
            m[j] *= t->gate[i];
        for (int j = 0; j < TILE; j++)
            all[j] = gqn_fma(t->k[i], m[j], all[j]);
    }
    memcpy(sum, all, sizeof all);
}
OP_KERNEL(decay, (const recurrence *r, const part *t, float *sum), (r, t, sum))

OP_BODY void update_body(const recurrence *r, const part *t, const float *restrict u) {
    float all[TILE];
    memcpy(all, u, sizeof all);
    for (int64_t i = 0; i < r->dk; i++) {
        float *restrict m = t->m + i * TILE;
        for (int j = 0; j < TILE; j++)
            m[j] = gqn_fma(t->k[i], all[j], m[j]);
    }
}
OP_KERNEL(update, (const recurrence *r, const part *t, const float *u), (r, t, u))

OP_BODY void result_body(const recurrence *r, const part *t, float *restrict y) {
    float all[TILE] = {0};
    for (int64_t i = 0; i < r->dk; i++) {
        const float *restrict m = t->m + i * TILE;
        for (int j = 0; j < TILE; j++)
            all[j] = gqn_fma(t->q[i], m[j], all[j]);
    }
    for (int j = 0; j < TILE; j++)
        y[j] = op_one_nan(all[j] * r->scale);
}
OP_KERNEL(result, (const recurrence *r, const part *t, float *y), (r, t, y))

/* Rounds the part of a state to the type in which states are stored. */
static void round_state(const recurrence *r, float *m) {
    gqac_tensor one = {.dtype = r->states->dtype};
    uint16_t half;
    one.data = &half;
    for (int64_t i = 0; one.dtype != GQAC_F32 && i < r->dk * TILE; i++) {
        op_put_f32(&one, 0, m[i]);
        m[i] = op_get_f32(&one, 0);
    }
}

/* The first element of a row of the part, in a state [Hkv,dk,dv]. */
static int64_t element_of(const recurrence *r, const part *t, int64_t i) {
    return (t->head * r->dk + i) * r->dv + t->from;
}

static void begin_part(const recurrence *r, part *t) {
    const void *before = r->states->before(r->states->arg, t->batch);
    const gqac_tensor state = {.dtype = r->states->dtype, .data = (void *)(uintptr_t)before};
    memset(t->m, 0, (size_t)(r->dk * TILE) * sizeof *t->m);
    for (int64_t i = 0; before && i < r->dk; i++)
        op_get_f32s(&state, element_of(r, t, i), t->width, t->m + i * TILE);
}

static void store_part(const recurrence *r, const part *t, void *to) {
    gqac_tensor state = {.dtype = r->states->dtype, .data = to};
    float row[TILE];
    for (int64_t i = 0; i < r->dk; i++) {
        for (int64_t j = 0; j < TILE; j++)
            row[j] = op_one_nan(t->m[i * TILE + j]);
        op_put_f32s(&state, element_of(r, t, i), t->width, row);
    }
}

static void load(const recurrence *r, int64_t row, part *t) {
    const int64_t k_head = t->head / (r->kv_heads / r->k_heads);
    op_get_f32s(r->k, (row * r->k_heads + k_head) * r->dk, r->dk, t->k);
    memset(t->v, 0, sizeof t->v);
    op_get_f32s(r->v, (row * r->kv_heads + t->head) * r->dv + t->from, t->width, t->v);
    if (r->rule & RECURRENCE_DELTA)
        t->beta = op_get_f32(r->beta, row * r->betas + (r->betas > 1 ? t->head : 0));
    if (!(r->rule & RECURRENCE_GATED))
        return;
    const bool each = r->decays != r->kv_heads;
    const int64_t first = row * r->decays + (each ? t->head * r->dk : t->head);
    for (int64_t i = 0; i < r->dk; i++)
        t->gate[i] = each || !i ? gqn_expf(op_get_f32(r->decay, first + i)) : t->gate[0];
}

static void add_token(const recurrence *r, part *t) {
    float u[TILE];
    if (r->rule)
        decay(r, t, u);
    for (int j = 0; j < TILE; j++)
        u[j] = r->rule & RECURRENCE_DELTA ? t->beta * (t->v[j] - u[j]) : t->v[j];
    update(r, t, u);
    round_state(r, t->m);
}

/* Writes the results of a head of v for its query heads: several, or one that several heads share.
 * `real` false: a row of padding, which becomes zeros. */
static void write_results(const recurrence *r, int64_t row, bool real, part *t) {
    const int64_t out_heads = r->q_heads > r->kv_heads ? r->q_heads : r->kv_heads;
    const int64_t each = out_heads / r->kv_heads, shared = out_heads / r->q_heads;
    float y[TILE] = {0};
    for (int64_t h = t->head * each; h < (t->head + 1) * each; h++) {
        op_get_f32s(r->q, (row * r->q_heads + h / shared) * r->dk, r->dk, t->q);
        if (real)
            result(r, t, y);
        op_put_f32s(r->y, (row * out_heads + h) * r->dv + t->from, t->width, y);
    }
}

static void run_part(const recurrence *r, part *t) {
    int64_t first;
    const int64_t tokens = r->states->tokens(r->states->arg, t->batch, &first);
    int n = 0;
    int64_t after = 0;
    void *to = r->states->after(r->states->arg, t->batch, n++, &after);
    begin_part(r, t);
    for (int64_t s = 0; s <= tokens; s++) {
        for (; to && s == after; to = r->states->after(r->states->arg, t->batch, n++, &after))
            store_part(r, t, to);
        if (s == tokens)
            break;
        load(r, first + s, t);
        add_token(r, t);
        write_results(r, first + s, true, t);
    }
    const bool padded = r->q->dims[0] == r->states->n;
    for (int64_t s = tokens; padded && s < r->tokens; s++)
        write_results(r, first + s, false, t);
}

/* Columns of a state are independent: an item is a tile of the columns of one head, with all
 * tokens. */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const recurrence *r = arg;
    const int64_t tiles = (r->dv + TILE - 1) / TILE;
    part t = {.m = (float *)(void *)(r->scratch.base + (size_t)worker * r->scratch.stride)};
    t.k = t.m + r->dk * TILE;
    t.q = t.k + r->dk;
    t.gate = t.q + r->dk;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        t.from = item % tiles * TILE;
        t.head = item / tiles % r->kv_heads;
        t.batch = item / tiles / r->kv_heads;
        t.width = r->dv - t.from < TILE ? r->dv - t.from : TILE;
        run_part(r, &t);
    }
}

/* [B,S,n] with n a positive multiple of `heads`. */
static gqac_status want_rows(const op_work *work, const gqac_tensor *q, const gqac_tensor *t,
                             const char *name, int64_t heads) {
    GQAC_TRY(op_floats(work, t, name, 3));
    if (t->dtype != q->dtype)
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' has the type %s, but query has %s", name,
                gqac_dtype_name(t->dtype), gqac_dtype_name(q->dtype));
    if (t->dims[0] != q->dims[0] || t->dims[1] != q->dims[1] || t->dims[2] < 1 ||
        t->dims[2] % heads != 0)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "input '%s' is not [%lld,%lld,n] with n a multiple of %lld", name,
                (long long)q->dims[0], (long long)q->dims[1], (long long)heads);
    return GQAC_OK;
}

static gqac_status fit_gates(const op_work *work, recurrence *r) {
    if (r->rule & RECURRENCE_GATED) {
        GQAC_TRY(want_rows(work, r->q, r->decay, "decay", r->kv_heads));
        r->decays = r->decay->dims[2];
        if (r->decays != r->kv_heads && r->decays != r->kv_heads * r->dk)
            OP_STOP(work, GQAC_INVALID_INPUT, "decay has %lld elements a token, not %lld or %lld",
                    (long long)r->decays, (long long)r->kv_heads, (long long)(r->kv_heads * r->dk));
    }
    if (!(r->rule & RECURRENCE_DELTA))
        return GQAC_OK;
    GQAC_TRY(want_rows(work, r->q, r->beta, "beta", 1));
    r->betas = r->beta->dims[2];
    if (r->betas != 1 && r->betas != r->kv_heads)
        OP_STOP(work, GQAC_INVALID_INPUT, "beta has %lld elements a token, not 1 or %lld",
                (long long)r->betas, (long long)r->kv_heads);
    return GQAC_OK;
}

gqac_status recurrence_fit(const op_work *work, const recurrence_form *form,
                           const recurrence_operands *in, recurrence *r) {
    *r = (recurrence){.q = in->q,
                      .k = in->k,
                      .v = in->v,
                      .decay = in->decay,
                      .beta = in->beta,
                      .q_heads = form->q_heads,
                      .kv_heads = form->kv_heads,
                      .scale = form->scale,
                      .rule = form->rule};
    GQAC_TRY(op_floats(work, in->q, "query", 3));
    GQAC_TRY(want_rows(work, in->q, in->q, "query", form->q_heads));
    GQAC_TRY(want_rows(work, in->q, in->k, "key", 1));
    GQAC_TRY(want_rows(work, in->q, in->v, "value", form->kv_heads));
    r->tokens = in->q->dims[1];
    r->dk = in->q->dims[2] / form->q_heads;
    r->dv = in->v->dims[2] / form->kv_heads;
    r->k_heads = in->k->dims[2] / r->dk;
    if (in->k->dims[2] % r->dk != 0 || form->kv_heads % r->k_heads != 0)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "query has heads of %lld elements and key has %lld elements: the heads of key must "
                "divide the %lld heads of value",
                (long long)r->dk, (long long)in->k->dims[2], (long long)form->kv_heads);
    GQAC_TRY(fit_gates(work, r));
    int64_t size;
    if (!gqac_mul_i64(r->dk, r->dv, &size) || size > INT32_MAX || r->dk > INT32_MAX / (2 * TILE))
        OP_STOP(work, GQAC_LIMIT, "a state of %lld x %lld elements is too large", (long long)r->dk,
                (long long)r->dv);
    if (r->scale == 0)
        r->scale = gqn_div(1.0f, gqn_sqrt((float)r->dk));
    const int64_t heads = r->q_heads > r->kv_heads ? r->q_heads : r->kv_heads;
    memcpy(r->out, (int64_t[]){in->q->dims[0], r->tokens, heads * r->dv}, sizeof r->out);
    return GQAC_OK;
}

/* Floats of a `part`. */
static size_t part_floats(const recurrence *r) {
    return (size_t)(r->dk * (TILE + 3));
}

void recurrence_measure(const recurrence *r, int threads, gqac_parts *parts) {
    op_scratch_measure(parts, threads, part_floats(r), sizeof(float));
}

gqac_status recurrence_run(const op_work *work, recurrence *r) {
    const int64_t tiles = (r->dv + TILE - 1) / TILE;
    GQAC_TRY(op_work_scratch(work, part_floats(r), sizeof(float), &r->scratch));
    op_work_parallel(work, r->states->n * r->kv_heads * tiles, 10 + r->tokens * r->dk * TILE / 8,
                     run, r);
    op_scratch_close(&r->scratch);
    return GQAC_OK;
}
