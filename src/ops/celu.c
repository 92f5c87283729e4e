/* Celu: y = max(0, x) + min(0, alpha (exp(x / alpha) - 1)). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

static inline float celu(float x, const float *alpha) {
    float low = *alpha * (gqn_expf(gqn_div(x, *alpha)) - 1.0f);
    return (x < 0.0f ? 0.0f : x) + (low > 0.0f ? 0.0f : low);
}

OP_SPAN1_FMA(f32, celu(x, arg_))

static const op_unary kernel = {.f32 = f32};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    const float of[] = {ir_attr_float(call->node, "alpha")};
    return op_unary_eval(call, &kernel, of);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1, "scale of the negative part"),
    {.name = NULL},
};

const gqac_op gqac_op_celu = {
    .schema = {.name = "Celu",
               .domain = "",
               .since = 12,
               .introduced = 12,
               .inputs = "x",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = max(0, x) + min(0, alpha (exp(x / alpha) - 1))"},
    .infer = infer,
    .eval = eval,
};
