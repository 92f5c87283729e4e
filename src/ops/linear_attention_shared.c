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
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
        if (i != PAST)
            GQAC_TRY(op_check_same(node, Q, i, diag));
        if (i != PAST && op_in_type(node, i).rank >= 0 && op_in_type(node, i).rank != 3)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input %d of rank %d, expected 3", i,
                    op_in_type(node, i).rank);
    }
    const gqac_dtype dtype = op_in_type(node, Q).dtype;
    const ir_dim *dv = divided(node, V, kv), *y[3] = {op_in_dim(node, Q, 0), op_in_dim(node, Q, 1)};
    if (dv)
        y[2] = ir_dim_mul(op_dims(node), dv, ir_dim_const(op_dims(node), q > kv ? q : kv));
    GQAC_TRY(op_set_type(node, 0, dtype, 3, y, diag));
    const ir_dim *state[4] = {y[0], ir_dim_const(op_dims(node), kv), divided(node, Q, q), dv};
    return op_set_type(node, 1, ir_node_input(node, PAST) ? op_in_type(node, PAST).dtype : dtype, 4,
                       state, diag);
}

typedef struct recurrence {
    const gqac_tensor *q, *k, *v, *past, *decay, *beta;
    gqac_tensor *y, *present; /* present: NULL when not wanted */
    int64_t tokens, q_heads, kv_heads, dk, dv;
    int64_t decays, betas; /* of one token: decays kv_heads * dk or kv_heads */
    gqac_dtype state;
    float scale;
    int rule;
    op_scratch scratch;
} recurrence;

typedef struct token {
    float *m, *k, *q, *v, *u; /* m [dk][dv] */
    float *gate;              /* exp(decay), [dk] */
    float beta;
} token;

/* y += M^T x */
OP_BODY void add_product(float *restrict y, const float *m, const float *x, int64_t dk,
                         int64_t dv) {
    for (int64_t i = 0; i < dk; i++)
        op_axpy(y, x[i], m + i * dv, dv);
}

OP_BODY void update_body(const recurrence *r, const token *t) {
    const int64_t dk = r->dk, dv = r->dv;
    if (r->rule & RULE_GATED)
        for (int64_t i = 0; i < dk; i++)
            for (int64_t j = 0; j < dv; j++)
                t->m[i * dv + j] *= t->gate[i];
    memcpy(t->u, t->v, (size_t)dv * sizeof(float));
    if (r->rule & RULE_DELTA) {
        memset(t->u, 0, (size_t)dv * sizeof(float));
        add_product(t->u, t->m, t->k, dk, dv);
        for (int64_t j = 0; j < dv; j++)
            t->u[j] = t->beta * (t->v[j] - t->u[j]);
    }
    for (int64_t i = 0; i < dk; i++)
        op_axpy(t->m + i * dv, t->k[i], t->u, dv);
}
OP_KERNEL(update, (const recurrence *r, const token *t), (r, t))

OP_BODY void result_body(const recurrence *r, const token *t, float *restrict y) {
    memset(y, 0, (size_t)r->dv * sizeof *y);
    add_product(y, t->m, t->q, r->dk, r->dv);
    for (int64_t j = 0; j < r->dv; j++)
        y[j] = op_one_nan(y[j] * r->scale);
}
OP_KERNEL(result, (const recurrence *r, const token *t, float *y), (r, t, y))

/* As it would be read back. */
static void round_state(const recurrence *r, float *m) {
    gqac_tensor one = {.dtype = r->state};
    uint16_t half;
    one.data = &half;
    for (int64_t i = 0; r->state != GQAC_F32 && i < r->dk * r->dv; i++) {
        op_put_f32(&one, 0, m[i]);
        m[i] = op_get_f32(&one, 0);
    }
}

static void load(const recurrence *r, int64_t row, int64_t head, token *t) {
    op_get_f32s(r->k, (row * r->kv_heads + head) * r->dk, r->dk, t->k);
    op_get_f32s(r->v, (row * r->kv_heads + head) * r->dv, r->dv, t->v);
    if (r->rule & RULE_DELTA)
        t->beta = op_get_f32(r->beta, row * r->betas + (r->betas > 1 ? head : 0));
    for (int64_t i = 0; r->rule & RULE_GATED && i < r->dk; i++) {
        const bool each = r->decays != r->kv_heads;
        t->gate[i] =
            gqn_expf(op_get_f32(r->decay, row * r->decays + (each ? head * r->dk + i : head)));
    }
}

/* Query heads of a head of k and v: several, or one that several of those share. */
static void write_results(const recurrence *r, int64_t row, int64_t head, token *t, float *y) {
    const int64_t out_heads = r->q_heads > r->kv_heads ? r->q_heads : r->kv_heads;
    const int64_t each = out_heads / r->kv_heads, shared = out_heads / r->q_heads;
    for (int64_t h = head * each; h < (head + 1) * each; h++) {
        op_get_f32s(r->q, (row * r->q_heads + h / shared) * r->dk, r->dk, t->q);
        result(r, t, y);
        op_put_f32s(r->y, (row * out_heads + h) * r->dv, r->dv, y);
    }
}

static void run(void *arg, size_t begin, size_t end, int worker) {
    const recurrence *r = arg;
    const int64_t size = r->dk * r->dv;
    float *room = (float *)(void *)(r->scratch.base + (size_t)worker * r->scratch.stride);
    token t = {.m = room, .k = room + size};
    t.q = t.k + r->dk;
    t.gate = t.q + r->dk;
    t.v = t.gate + r->dk;
    t.u = t.v + r->dv;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        const int64_t batch = item / r->kv_heads, head = item % r->kv_heads;
        memset(t.m, 0, (size_t)size * sizeof(float));
        if (r->past)
            op_get_f32s(r->past, item * size, size, t.m);
        for (int64_t s = 0; s < r->tokens; s++) {
            load(r, batch * r->tokens + s, head, &t);
            update(r, &t);
            round_state(r, t.m);
            write_results(r, batch * r->tokens + s, head, &t, t.u + r->dv);
        }
        for (int64_t i = 0; r->present && i < size; i++)
            t.m[i] = op_one_nan(t.m[i]);
        if (r->present)
            op_put_f32s(r->present, item * size, size, t.m);
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

static gqac_status want_past(op_call *call, recurrence *r) {
    GQAC_TRY(op_want_set(call, PAST, OP_FLOATS));
    r->past = call->in[PAST];
    const int64_t wanted[] = {r->q->dims[0], r->kv_heads, r->dk, r->dv};
    bool fits = r->past->rank == 4;
    for (int i = 0; fits && i < 4; i++)
        fits = r->past->dims[i] == wanted[i];
    if (!fits)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "past_state is not [%lld,%lld,%lld,%lld]", (long long)wanted[0],
                (long long)wanted[1], (long long)wanted[2], (long long)wanted[3]);
    r->state = r->past->dtype;
    return GQAC_OK;
}

static gqac_status read_inputs(op_call *call, recurrence *r) {
    const ir_node *node = call->node;
    GQAC_TRY(op_want_set(call, Q, OP_FLOATS));
    GQAC_TRY(want_rows(call, Q, r->q_heads, &r->q));
    GQAC_TRY(want_rows(call, K, r->kv_heads, &r->k));
    GQAC_TRY(want_rows(call, V, r->kv_heads, &r->v));
    r->tokens = r->q->dims[1];
    r->dk = r->q->dims[2] / r->q_heads;
    r->dv = r->v->dims[2] / r->kv_heads;
    r->state = r->q->dtype;
    if (r->k->dims[2] / r->kv_heads != r->dk)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                "heads of query have %lld elements, of key %lld", (long long)r->dk,
                (long long)(r->k->dims[2] / r->kv_heads));
    if (ir_node_input(node, PAST))
        GQAC_TRY(want_past(call, r));
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

gqac_status linear_attention_eval(op_call *call) {
    GQAC_TRY(linear_attention_verify(call->node, call->diag));
    recurrence r = {.q_heads = ir_attr_int(call->node, "q_num_heads"),
                    .kv_heads = ir_attr_int(call->node, "kv_num_heads"),
                    .scale = ir_attr_float(call->node, "scale"),
                    .rule = rule_of(call->node)};
    GQAC_TRY(read_inputs(call, &r));
    if (r.scale == 0)
        r.scale = gqn_div(1.0f, gqn_sqrt((float)r.dk));
    const int64_t heads = r.q_heads > r.kv_heads ? r.q_heads : r.kv_heads;
    int64_t room;
    if (!gqac_mul_i64(r.dk, r.dv, &room) || room > INT32_MAX)
        OP_FAIL(call->node, call->diag, GQAC_LIMIT, "a state of %lld x %lld elements",
                (long long)r.dk, (long long)r.dv);
    GQAC_TRY(op_output(call, 0, r.q->dtype, 3, (int64_t[]){r.q->dims[0], r.tokens, heads * r.dv}));
    r.y = &call->out[0];
    if (ir_node_output(call->node, 1)) {
        GQAC_TRY(op_output(call, 1, r.state, 4, (int64_t[]){r.q->dims[0], r.kv_heads, r.dk, r.dv}));
        r.present = &call->out[1];
    }
    GQAC_TRY(
        op_scratch_open(call, (size_t)(room + 3 * r.dk + 3 * r.dv), sizeof(float), &r.scratch));
    op_parallel(call, r.q->dims[0] * r.kv_heads, 10 + r.tokens * room, run, &r);
    op_scratch_close(&r.scratch);
    return GQAC_OK;
}
