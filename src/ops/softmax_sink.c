/* p [B,H,S,T] fp32: with m = max(max_j s_j, sink_h) and e_j = exp(s_j - m),
 *   p_j = e_j / (sum_j e_j + exp(sink_h - m))      (without a sink: its terms are absent)
 * Maximum and sum are 16-lane trees over absolute j, so keys at -inf change no bit. A row whose
 * maximum is -inf becomes zeros; a NaN makes its whole row NaN, and no other row. */
#include "ops/attention.h"

#include <string.h>

#include "numerics/math.h"
#include "numerics/reduce.h"
#include "ops/kernel.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, 0, 4, diag));
    GQAC_TRY(attention_want_rank(node, 1, 1, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, 1, 0), op_in_dim(node, 0, 1), "sinks", diag));
    const ir_dim *dims[4];
    for (int i = 0; i < 4; i++)
        dims[i] = op_in_dim(node, 0, i);
    return op_set_type(node, 0, GQAC_F32, 4, dims, diag);
}

static bool any_nan(const float *s, int64_t n) {
    for (int64_t j = 0; j < n; j++)
        if (s[j] != s[j])
            return true;
    return false;
}

/* e_j of one row; returns m. */
OP_BODY void exponents_body(const float *s, int64_t n, float m, float *e) {
    int64_t j = 0;
    for (; j + GQAC_LANES <= n; j += GQAC_LANES)
        for (int l = 0; l < GQAC_LANES; l++)
            e[j + l] = gqn_expf(s[j + l] - m);
    for (; j < n; j++)
        e[j] = gqn_expf(s[j] - m);
}
OP_KERNEL(exponents, (const float *s, int64_t n, float m, float *e), (s, n, m, e))

static void one_row(const float *s, int64_t n, const float *sink, float *p) {
    float m = gqn_lane_max(s, (size_t)n);
    if (sink)
        m = gqn_max_step(m, *sink);
    if (m == -gqn_as_f32(GQN_INF_BITS)) {
        bool poisoned = any_nan(s, n) || (sink && *sink != *sink);
        for (int64_t j = 0; j < n; j++)
            p[j] = poisoned ? gqn_as_f32(GQN_NAN_BITS) : 0.0f;
        return;
    }
    exponents(s, n, m, p);
    float sum = gqn_lane_sum(p, (size_t)n);
    if (sink)
        sum += gqn_expf(*sink - m);
    for (int64_t j = 0; j < n; j++)
        p[j] = op_one_nan(p[j] / sum);
}

typedef struct softmax {
    const float *s;
    const gqac_tensor *sink;
    float *p;
    int64_t heads, rows, keys;
} softmax;

static void run(void *arg, size_t begin, size_t end, int worker) {
    const softmax *c = arg;
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        int64_t at = (int64_t)item * c->keys, h = (int64_t)item / c->rows % c->heads;
        float sink = c->sink ? op_get_f32(c->sink, h) : 0.0f;
        one_row(c->s + at, c->keys, c->sink ? &sink : NULL, c->p + at);
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_F32));
    GQAC_TRY(attention_float(call, 0, 4));
    const gqac_tensor *s = call->in[0];
    softmax c = {.s = s->data, .heads = s->dims[1], .rows = s->dims[2], .keys = s->dims[3]};
    c.sink = call->node->n_inputs > 1 ? call->in[1] : NULL;
    if (c.sink) {
        GQAC_TRY(attention_float(call, 1, 1));
        if (c.sink->dims[0] != c.heads)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "there are %lld sinks for %lld heads", (long long)c.sink->dims[0],
                    (long long)c.heads);
    }
    GQAC_TRY(op_output_like(call, 0, GQAC_F32, s));
    c.p = call->out[0].data;
    op_parallel(call, s->dims[0] * c.heads * c.rows, 1 + 4 * c.keys, run, &c);
    return GQAC_OK;
}

const gqac_op gqac_op_softmax_sink = {
    .schema = {.name = "softmax_sink",
               .domain = "gqac",
               .since = 1,
               .inputs = "s sink?",
               .outputs = "p",
               .rows = IR_ROWS_LOCAL,
               .doc = "softmax of s [B,H,S,T] over T; sink [H] joins maximum and denominator"},
    .infer = infer,
    .eval = eval,
};
