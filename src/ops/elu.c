/* Elu: y = alpha (exp(x) - 1) for x < 0, else x. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

static inline float elu(float x, const float *alpha) {
    return x < 0.0f ? *alpha * (gqn_expf(x) - 1.0f) : x;
}

OP_SPAN1_FMA(f32, elu(x, arg_))

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

const gqac_op gqac_op_elu = {
    .schema = {.name = "Elu",
               .domain = "",
               .since = 6,
               .inputs = "x",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x, alpha (exp(x) - 1) where x < 0"},
    .infer = infer,
    .eval = eval,
};
