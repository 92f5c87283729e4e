/* LeakyRelu: y = alpha x for x < 0, else x. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN1(f32, float, x < 0.0f ? *(const float *)arg_ * x : x)

static const op_unary kernel = {.f32 = f32};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    const float of[] = {ir_attr_float(call->node, "alpha")};
    return op_unary_eval(call, &kernel, of);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 0.01f, "slope of the negative part"),
    {.name = NULL},
};

const gqac_op gqac_op_leaky_relu = {
    .schema = {.name = "LeakyRelu",
               .domain = "",
               .since = 16,
               .inputs = "x",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x, alpha x where x < 0"},
    .infer = infer,
    .eval = eval,
};
