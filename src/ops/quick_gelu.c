/* QuickGelu: y = x sigmoid(alpha x). Source: ONNX Runtime contrib operators. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

static inline float quick_gelu(float x, const float *alpha) {
    return x * gqn_sigmoidf(*alpha * x);
}

OP_SPAN1_FMA(span, quick_gelu(x, arg_))

static const op_unary kernel = {.f32 = span};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    float alpha = ir_attr_float(call->node, "alpha");
    return op_unary_eval(call, &kernel, &alpha);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1.702f, "factor inside the sigmoid"),
    {.name = NULL},
};

const gqac_op gqac_op_quick_gelu = {
    .schema = {.name = "QuickGelu",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "x",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x sigmoid(alpha x)"},
    .infer = infer,
    .eval = eval,
};
