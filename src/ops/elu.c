/* Elu: y = alpha (exp(x) - 1) for x < 0, else x. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

static inline float elu(float x, const float *alpha) {
    return x < 0.0f ? *alpha * (gqn_expf(x) - 1.0f) : x;
}

OP_SPAN1_FMA(f32, elu(x, arg_))

OP_UNARY(.f32 = f32)

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1, "scale of the negative part"),
    {.name = NULL},
};

const gqac_op gqac_op_elu = OP_UNARY_ROW(.name = "Elu", .domain = "", .since = 6, .attrs = attrs,
                                         .doc = "y = x, alpha (exp(x) - 1) where x < 0");
