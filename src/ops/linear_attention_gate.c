/* com.microsoft.LinearAttentionGate: decay = decay_scale * softplus(a + dt_bias) and
 * beta = sigmoid(b), in fp32 and rounded once. dt_bias and decay_scale are f32 [H], H the last axis
 * of a. Source: ONNX Runtime contrib operators. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

#include "numerics/math.h"
#include "ops/kernel.h"

enum { A, DT_BIAS, DECAY_SCALE, B };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    for (int i = A; i <= B; i += B)
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, A, B, diag));
    for (int i = DT_BIAS; i <= DECAY_SCALE; i++) {
        GQAC_TRY(op_check_dtype(node, i, OP_BIT(F32), diag));
        GQAC_TRY(op_check_rank(node, i, 1, 1, diag));
        GQAC_TRY(op_check_length(node, i, 0, op_in_dim(node, A, -1), diag));
    }
    if (ir_node_output(node, 1) && !ir_node_input(node, B))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "output beta needs the input b");
    GQAC_TRY(op_set_type_like(node, 0, op_in_type(node, A), diag));
    return op_set_type_like(node, 1, op_in_type(node, B), diag);
}

OP_BODY void decay_body(float *restrict y, const float *a, const float *bias, const float *scale,
                        size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = op_one_nan(scale[i] * gqn_softplusf(a[i] + bias[i]));
}
OP_KERNEL(decay, (float *y, const float *a, const float *bias, const float *scale, size_t n),
          (y, a, bias, scale, n))

static void decay_span(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    float out[OP_SPAN]; /* y may be x[0] */
    decay(out, x[0], x[1], x[2], n);
    for (size_t i = 0; i < n; i++)
        ((float *)y)[i] = out[i];
}

static void beta_span(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    for (size_t i = 0; i < n; i++)
        ((float *)y)[i] = gqn_sigmoidf(((const float *)x[0])[i]);
}

static gqac_status eval_decay(op_call *call) {
    const gqac_tensor *a = call->in[A];
    for (int i = DT_BIAS; i <= DECAY_SCALE; i++) {
        GQAC_TRY(op_want(call, i, GQAC_F32));
        if (a->rank < 1 || call->in[i]->rank != 1 || call->in[i]->dims[0] != a->dims[a->rank - 1])
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "input %d does not have the length of the last axis of a", i);
    }
    GQAC_TRY(op_output_like(call, 0, a->dtype, a));
    op_map map = {.run = decay_span,
                  .n_in = 3,
                  .in = {a, call->in[DT_BIAS], call->in[DECAY_SCALE]},
                  .in_as = {OP_AS_F32, OP_AS_F32, OP_AS_F32},
                  .out = &call->out[0],
                  .out_as = OP_AS_F32};
    op_map_run(call, &map);
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, A, OP_FLOATS));
    GQAC_TRY(eval_decay(call));
    if (ir_node_input(call->node, B) || ir_node_output(call->node, 1))
        GQAC_TRY(op_want(call, B, call->in[A]->dtype));
    if (!ir_node_output(call->node, 1))
        return GQAC_OK;
    GQAC_TRY(op_output_like(call, 1, call->in[B]->dtype, call->in[B]));
    op_map map = {.run = beta_span,
                  .n_in = 1,
                  .in = {call->in[B]},
                  .in_as = {OP_AS_F32},
                  .out = &call->out[1],
                  .out_as = OP_AS_F32};
    op_map_run(call, &map);
    return GQAC_OK;
}

const gqac_op gqac_op_linear_attention_gate = {
    .schema = {.name = "LinearAttentionGate",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "a dt_bias decay_scale b?",
               .outputs = "decay beta?",
               .rows = IR_ROWS_LOCAL,
               .doc = "decay = decay_scale * softplus(a + dt_bias), beta = sigmoid(b)"},
    .infer = infer,
    .eval = eval,
};
