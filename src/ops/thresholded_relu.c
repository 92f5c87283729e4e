/* ThresholdedRelu: y = x for x > alpha, else 0; NaN gives 0. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN1(f32, float, x > *(const float *)arg_ ? x : 0.0f)

static const op_unary kernel = {.f32 = f32};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    const float of[] = {ir_attr_float(call->node, "alpha")};
    return op_unary_eval(call, &kernel, of);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1, "threshold"),
    {.name = NULL},
};

const gqac_op gqac_op_thresholded_relu = {
    .schema = {.name = "ThresholdedRelu",
               .domain = "",
               .since = 10,
               .introduced = 10,
               .inputs = "x",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x where x > alpha, else 0"},
    .infer = infer,
    .eval = eval,
};
