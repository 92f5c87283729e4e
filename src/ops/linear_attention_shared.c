/* The recurrence of LinearAttention. A head of k and v of one batch row is one work item, with all
 * of its tokens in order. */
#include "ops/linear_attention.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "numerics/math.h"
#include "ops/kernel.h"
#include "ops/recurrent.h"

enum { Q, K, V, PAST, DECAY, BETA };
enum { RULE_GATED = 1, RULE_DELTA = 2 };

const ir_attr_spec linear_attention_attrs[] = {
    {.name = "q_num_heads", .kind = IR_ATTR_INT, .required = true, .doc = "heads of query"},
    {.name = "kv_num_heads",
     .kind = IR_ATTR_INT,
     .required = true,
     .doc = "heads of key and value"},
    {.name = "update_rule",
     .kind = IR_ATTR_STRING,
     .fallback = {.set = true, .s = "gated_delta"},
     .doc = "linear, gated, delta or gated_delta"},
    {.name = "scale",
     .kind = IR_ATTR_FLOAT,
     .fallback = {.set = true, .f = 0},
     .doc = "of the result; 0: 1/sqrt(dk)"},
    {.name = "chunk_size",
     .kind = IR_ATTR_INT,
     .fallback = {.set = true, .i = 64},
     .doc = "a hint for other implementations"},
    {.name = "state_window",
     .kind = IR_ATTR_INT,
     .fallback = {.set = true, .i = 0},
     .doc = "com.microsoft; only 0"},
    {.name = NULL},
};

/* -1: no such rule. */
static int rule_of(const ir_node *node) {
    static const char *const names[] = {"linear", "gated", "delta", "gated_delta"};
    for (int i = 0; i < 4; i++)
        if (strcmp(ir_attr_get(node, "update_rule")->s, names[i]) == 0)
            return i;
    return -1;
}

gqac_status linear_attention_verify(const ir_node *node, gqac_diag *diag) {
    const int64_t q = ir_attr_int(node, "q_num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    const int rule = rule_of(node);
    if (q < 1 || kv < 1 || (q % kv != 0 && kv % q != 0))
        OP_FAIL(
            node, diag, GQAC_INVALID_MODEL,
            "attributes q_num_heads = %lld, kv_num_heads = %lld: one is a multiple of the other",
            (long long)q, (long long)kv);
    if (rule < 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute update_rule = '%s': linear, gated, delta or gated_delta",
                ir_attr_get(node, "update_rule")->s);
    if (ir_attr_int(node, "state_window") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute state_window = %lld: only 0",
                (long long)ir_attr_int(node, "state_window"));
    if (!isfinite(ir_attr_float(node, "scale")))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute scale is not finite");
    for (int i = 0; i < 2; i++)
        if (rule & (i ? RULE_DELTA : RULE_GATED) && !ir_node_input(node, i ? BETA : DECAY))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the rule '%s' needs the input %s",
                    ir_attr_get(node, "update_rule")->s, i ? "beta" : "decay");
    return GQAC_OK;
}

bool linear_attention_mixes(const ir_node *node) {
    return !op_carries_state(node, PAST, 1);
}

/* dim / by, when both are known. */
static const ir_dim *divided(const ir_node *node, int input, int64_t by) {
    int64_t n;
    return ir_dim_is_const(op_in_dim(node, input, 2), &n) ? ir_dim_const(op_dims(node), n / by)
                                                          : NULL;
}

gqac_status linear_attention_infer(ir_node *node, gqac_diag *diag) {
    const int64_t q = ir_attr_int(node, "q_num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    for (int i = Q; i <= BETA; i++) {
        if (i == PAST)
            continue;
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
        GQAC_TRY(op_check_same(node, Q, i, diag));
        if (op_in_type(node, i).rank >= 0 && op_in_type(node, i).rank != 3)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input %d of rank %d, expected 3", i,
                    op_in_type(node, i).rank);
    }
    const gqac_dtype dtype = op_in_type(node, Q).dtype;
    const ir_dim *dv = divided(node, V, kv), *y[3] = {op_in_dim(node, Q, 0), op_in_dim(node, Q, 1)};
    if (dv)
        y[2] = ir_dim_mul(op_dims(node), dv, ir_dim_const(op_dims(node), q > kv ? q : kv));
    GQAC_TRY(op_set_type(node, 0, dtype, 3, y, diag));
    if (op_in_type(node, PAST).dtype == GQAC_TOKEN)
        return op_set_type(node, 1, GQAC_TOKEN, 0, NULL, diag);
    GQAC_TRY(op_check_dtype(node, PAST, OP_FLOATS, diag));
    const ir_dim *state[4] = {y[0], ir_dim_const(op_dims(node), kv), divided(node, Q, q), dv};
    return op_set_type(node, 1, ir_node_input(node, PAST) ? op_in_type(node, PAST).dtype : dtype, 4,
                       state, diag);
}

enum { TILE = 32 }; /* columns of a state that are computed together */

typedef struct recurrence {
    op_call *call;
    const linear_attention_states *states;
    const gqac_tensor *q, *k, *v, *decay, *beta;
    gqac_tensor *y;
    int64_t tokens, q_heads, k_heads, kv_heads, dk, dv;
    int64_t decays, betas; /* of one token: decays kv_heads * dk or kv_heads */
    float scale;
    int rule;
    op_scratch scratch;
} recurrence;

/* Columns [from, from + width) of the state of one head, with what one token brings. */
typedef struct part {
    float *m;     /* [dk][TILE] */
    float *k, *q; /* [dk] */
    float *gate;  /* exp(decay), [dk] */
    float v[TILE], beta;
    int64_t batch, head, from, width;
} part;

/* m = gate * m, and sum[j] = the sum over i of k[i] * m[i][j]. */
OP_BODY void decay_body(const recurrence *r, const part *t, float *restrict sum) {
    const bool gated = r->rule & RULE_GATED;
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

/* As it would be read back. */
static void round_state(const recurrence *r, float *m) {
    gqac_tensor one = {.dtype = r->states->dtype};
    uint16_t half;
    one.data = &half;
    for (int64_t i = 0; one.dtype != GQAC_F32 && i < r->dk * TILE; i++) {
        op_put_f32(&one, 0, m[i]);
        m[i] = op_get_f32(&one, 0);
    }
}

/* Where a row of the part begins in a state [Hkv,dk,dv]. */
static int64_t place(const recurrence *r, const part *t, int64_t i) {
    return (t->head * r->dk + i) * r->dv + t->from;
}

static void begin_part(const recurrence *r, part *t) {
    const void *before = r->states->before(r->call, t->batch);
    const gqac_tensor state = {.dtype = r->states->dtype, .data = (void *)(uintptr_t)before};
    memset(t->m, 0, (size_t)(r->dk * TILE) * sizeof *t->m);
    for (int64_t i = 0; before && i < r->dk; i++)
        op_get_f32s(&state, place(r, t, i), t->width, t->m + i * TILE);
}

static void store_part(const recurrence *r, const part *t, void *to) {
    gqac_tensor state = {.dtype = r->states->dtype, .data = to};
    float row[TILE];
    for (int64_t i = 0; i < r->dk; i++) {
        for (int64_t j = 0; j < TILE; j++)
            row[j] = op_one_nan(t->m[i * TILE + j]);
        op_put_f32s(&state, place(r, t, i), t->width, row);
    }
}

static void load(const recurrence *r, int64_t row, part *t) {
    const int64_t k_head = t->head / (r->kv_heads / r->k_heads);
    op_get_f32s(r->k, (row * r->k_heads + k_head) * r->dk, r->dk, t->k);
    memset(t->v, 0, sizeof t->v);
    op_get_f32s(r->v, (row * r->kv_heads + t->head) * r->dv + t->from, t->width, t->v);
    if (r->rule & RULE_DELTA)
        t->beta = op_get_f32(r->beta, row * r->betas + (r->betas > 1 ? t->head : 0));
    if (!(r->rule & RULE_GATED))
        return;
    const bool each = r->decays != r->kv_heads;
    const int64_t first = row * r->decays + (each ? t->head * r->dk : t->head);
    for (int64_t i = 0; i < r->dk; i++)
        t->gate[i] = each || !i ? gqn_expf(op_get_f32(r->decay, first + i)) : t->gate[0];
}

static void take_token(const recurrence *r, part *t) {
    float u[TILE];
    if (r->rule)
        decay(r, t, u);
    for (int j = 0; j < TILE; j++)
        u[j] = r->rule & RULE_DELTA ? t->beta * (t->v[j] - u[j]) : t->v[j];
    update(r, t, u);
    round_state(r, t->m);
}

/* Query heads of a head of k and v: several, or one that several of those share. */
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
    const int64_t tokens = r->states->tokens(r->call, t->batch, &first);
    int n = 0;
    int64_t after = 0;
    void *to = r->states->after(r->call, t->batch, n++, &after);
    begin_part(r, t);
    for (int64_t s = 0; s <= tokens; s++) {
        for (; to && s == after; to = r->states->after(r->call, t->batch, n++, &after))
            store_part(r, t, to);
        if (s == tokens)
            break;
        load(r, first + s, t);
        take_token(r, t);
        write_results(r, first + s, true, t);
    }
    const bool padded = r->q->dims[0] == r->states->n;
    for (int64_t s = tokens; padded && s < r->tokens; s++)
        write_results(r, first + s, false, t);
}

/* Columns of a state do not meet: an item is a tile of those of one head, with all tokens. */
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
static gqac_status want_rows(op_call *call, int input, int64_t heads, const gqac_tensor **out) {
    GQAC_TRY(op_want(call, input, call->in[Q]->dtype));
    const gqac_tensor *t = call->in[input], *q = call->in[Q];
    if (t->rank != 3 || q->rank != 3 || t->dims[0] != q->dims[0] || t->dims[1] != q->dims[1] ||
        t->dims[2] < 1 || t->dims[2] % heads != 0)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "input %d is not [B,S,n] with n a multiple of %lld", input, (long long)heads);
    *out = t;
    return GQAC_OK;
}

static gqac_status read_inputs(op_call *call, recurrence *r) {
    const ir_node *node = call->node;
    GQAC_TRY(op_want_set(call, Q, OP_FLOATS));
    GQAC_TRY(want_rows(call, Q, r->q_heads, &r->q));
    GQAC_TRY(want_rows(call, K, 1, &r->k));
    GQAC_TRY(want_rows(call, V, r->kv_heads, &r->v));
    r->tokens = r->q->dims[1];
    r->dk = r->q->dims[2] / r->q_heads;
    r->dv = r->v->dims[2] / r->kv_heads;
    r->k_heads = r->k->dims[2] / r->dk;
    if (r->k->dims[2] % r->dk != 0 || r->kv_heads % r->k_heads != 0)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                "heads of query have %lld elements: key of %lld is not a head for each of the %lld "
                "of value, nor one for several",
                (long long)r->dk, (long long)r->k->dims[2], (long long)r->kv_heads);
    if (r->rule & RULE_GATED) {
        GQAC_TRY(want_rows(call, DECAY, r->kv_heads, &r->decay));
        r->decays = r->decay->dims[2];
        if (r->decays != r->kv_heads && r->decays != r->kv_heads * r->dk)
            OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "decay has %lld elements a token",
                    (long long)r->decays);
    }
    if (!(r->rule & RULE_DELTA))
        return GQAC_OK;
    GQAC_TRY(want_rows(call, BETA, 1, &r->beta));
    r->betas = r->beta->dims[2];
    if (r->betas != 1 && r->betas != r->kv_heads)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "beta has %lld elements a token",
                (long long)r->betas);
    return GQAC_OK;
}

gqac_status linear_attention_run(op_call *call, const linear_attention_states *states) {
    GQAC_TRY(linear_attention_verify(call->node, call->diag));
    recurrence r = {.call = call,
                    .states = states,
                    .q_heads = ir_attr_int(call->node, "q_num_heads"),
                    .kv_heads = ir_attr_int(call->node, "kv_num_heads"),
                    .scale = ir_attr_float(call->node, "scale"),
                    .rule = rule_of(call->node)};
    GQAC_TRY(read_inputs(call, &r));
    if (r.scale == 0)
        r.scale = gqn_div(1.0f, gqn_sqrt((float)r.dk));
    const int64_t heads = r.q_heads > r.kv_heads ? r.q_heads : r.kv_heads;
    int64_t size;
    if (!gqac_mul_i64(r.dk, r.dv, &size) || size > INT32_MAX || r.dk > INT32_MAX / (2 * TILE))
        OP_FAIL(call->node, call->diag, GQAC_LIMIT, "a state of %lld x %lld elements",
                (long long)r.dk, (long long)r.dv);
    GQAC_TRY(states->open(call, (int64_t[]){states->n, r.kv_heads, r.dk, r.dv}));
    GQAC_TRY(op_output(call, 0, r.q->dtype, 3, (int64_t[]){r.q->dims[0], r.tokens, heads * r.dv}));
    r.y = &call->out[0];
    GQAC_TRY(op_scratch_open(call, (size_t)(r.dk * (TILE + 3)), sizeof(float), &r.scratch));
    op_parallel(call, states->n * r.kv_heads * ((r.dv + TILE - 1) / TILE),
                10 + r.tokens * r.dk * TILE / 8, run, &r);
    op_scratch_close(&r.scratch);
    return GQAC_OK;
}

/* ---- past and present as tensors ----------------------------------------- */

static gqac_status open_tensors(op_call *call, const int64_t dims[4]) {
    const gqac_tensor *past = ir_node_input(call->node, PAST) ? call->in[PAST] : NULL;
    if (past)
        GQAC_TRY(op_want_set(call, PAST, OP_FLOATS));
    bool fits = !past || past->rank == 4;
    for (int i = 0; past && fits && i < 4; i++)
        fits = past->dims[i] == dims[i];
    if (!fits)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "past_state is not [%lld,%lld,%lld,%lld]", (long long)dims[0], (long long)dims[1],
                (long long)dims[2], (long long)dims[3]);
    if (!ir_node_output(call->node, 1))
        return GQAC_OK;
    return op_output(call, 1, past ? past->dtype : call->in[Q]->dtype, 4, dims);
}

static int64_t all_tokens(const op_call *call, int64_t b, int64_t *first) {
    *first = b * call->in[Q]->dims[1];
    return call->in[Q]->dims[1];
}

static void *of_batch(const gqac_tensor *state, int64_t b) {
    const size_t bytes = state->dims[0] ? gqac_tensor_bytes(state) / (size_t)state->dims[0] : 0;
    return (char *)state->data + (size_t)b * bytes;
}

static const void *past_of(const op_call *call, int64_t b) {
    return ir_node_input(call->node, PAST) ? of_batch(call->in[PAST], b) : NULL;
}

static void *present_of(const op_call *call, int64_t b, int i, int64_t *after) {
    *after = call->in[Q]->dims[1];
    return i || !ir_node_output(call->node, 1) ? NULL : of_batch(&call->out[1], b);
}

gqac_status linear_attention_eval(op_call *call) {
    const bool past = ir_node_input(call->node, PAST) && call->in[PAST];
    const linear_attention_states states = {.dtype = call->in[past ? PAST : Q]->dtype,
                                            .n = call->in[Q]->dims[0],
                                            .open = open_tensors,
                                            .tokens = all_tokens,
                                            .before = past_of,
                                            .after = present_of};
    return linear_attention_run(call, &states);
}
