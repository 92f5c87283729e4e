/* FastGelu: y = u/2 (1 + tanh(u (0.0356774081 u^2 + 0.7978845608))) with u = x + bias, bias[last
 * axis] optional. Source: ONNX Runtime contrib operators. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

OP_BODY float fast_gelu(float u) {
    return op_one_nan(0.5f * u * (1.0f + gqn_tanhf(u * (0.035677408f * (u * u) + 0.7978845608f))));
}

OP_BODY void biased_body(float *restrict y, const float *restrict x, const float *restrict bias,
                         size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = fast_gelu(x[i] + bias[i]);
}
OP_KERNEL(biased, (float *y, const float *x, const float *bias, size_t n), (y, x, bias, n))

static void span(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    biased(y, x[0], x[1], n);
}

OP_SPAN1_FMA(plain, fast_gelu(x))
static const op_unary kernel = {.f32 = plain};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    int rank;
    int64_t dims[GQAC_MAX_RANK];
    if (!ir_node_input(call->node, 1))
        return op_unary_eval_with(call, &kernel, NULL);
    GQAC_TRY(op_want_set(call, 0, OP_FLOATS));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(op_want(call, 1, x->dtype));
    const gqac_tensor *bias = call->in[1];
    GQAC_TRY(op_broadcast(call, x, bias, &rank, dims));
    if (bias->rank != 1 || x->rank < 1 || bias->dims[0] != x->dims[x->rank - 1])
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "bias does not have the shape of a row");
    GQAC_TRY(op_output_like(call, 0, x->dtype, x));
    op_map map = {.run = span,
                  .n_in = 2,
                  .in = {x, bias},
                  .in_as = {OP_AS_F32, OP_AS_F32},
                  .out = &call->out[0],
                  .out_as = OP_AS_F32};
    op_map_run(call, &map);
    return GQAC_OK;
}

const gqac_op gqac_op_fast_gelu = {
    .schema = {.name = "FastGelu",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "x bias?",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = u/2 (1 + tanh(u (0.0356774081 u^2 + 0.7978845608))), u = x + bias"},
    .infer = infer,
    .eval = eval,
};
