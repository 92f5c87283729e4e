/* HardSigmoid: y = max(0, min(1, alpha x + beta)), product and sum rounded each. Source: ONNX
 * operator spec. */
#include "ops/elementwise.h"

static inline float hard_sigmoid(float x, const float *of) {
    float y = of[0] * x + of[1];
    return y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y;
}

OP_SPAN1(f32, float, hard_sigmoid(x, arg_))

static const op_unary kernel = {.f32 = f32};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    const float of[] = {ir_attr_float(call->node, "alpha"), ir_attr_float(call->node, "beta")};
    return op_unary_eval(call, &kernel, of);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 0.2f, "slope"),
    OP_ATTR_FLOAT("beta", 0.5f, "value at 0"),
    {.name = NULL},
};

const gqac_op gqac_op_hard_sigmoid = {
    .schema = {.name = "HardSigmoid",
               .domain = "",
               .since = 6,
               .inputs = "x",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = max(0, min(1, alpha x + beta))"},
    .infer = infer,
    .eval = eval,
};
