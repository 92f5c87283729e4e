/* Selu: y = gamma (alpha exp(x) - alpha) for x <= 0, else gamma x. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

static inline float selu(float x, const float *of) {
    return of[1] * (x <= 0.0f ? of[0] * gqn_expf(x) - of[0] : x);
}

OP_SPAN1_FMA(f32, selu(x, arg_))

static const op_unary kernel = {.f32 = f32};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    const float of[] = {ir_attr_float(call->node, "alpha"), ir_attr_float(call->node, "gamma")};
    return op_unary_eval(call, &kernel, of);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1.67326319217681884765625f, "scale of the exponential"),
    OP_ATTR_FLOAT("gamma", 1.05070102214813232421875f, "scale of all"),
    {.name = NULL},
};

const gqac_op gqac_op_selu = {
    .schema = {.name = "Selu",
               .domain = "",
               .since = 6,
               .inputs = "x",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = gamma x, gamma (alpha exp(x) - alpha) where x <= 0"},
    .infer = infer,
    .eval = eval,
};
