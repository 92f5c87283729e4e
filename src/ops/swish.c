/* Swish: y = x sigmoid(alpha x). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

static inline float swish(float x, const float *alpha) {
    return x * gqn_sigmoidf(*alpha * x);
}

OP_SPAN1_FMA(f32, swish(x, arg_))

static const op_unary kernel = {.f32 = f32};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    const float of[] = {ir_attr_float(call->node, "alpha")};
    return op_unary_eval(call, &kernel, of);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1, "factor inside the sigmoid"),
    {.name = NULL},
};

const gqac_op gqac_op_swish = {
    .schema = {.name = "Swish",
               .domain = "",
               .since = 24,
               .introduced = 24,
               .inputs = "x",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x sigmoid(alpha x)"},
    .infer = infer,
    .eval = eval,
};
