/* Celu: y = max(0, x) + min(0, alpha (exp(x / alpha) - 1)). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

static inline float celu(float x, const float *alpha) {
    float low = *alpha * (gqn_expf(gqn_div(x, *alpha)) - 1.0f);
    return (x < 0.0f ? 0.0f : x) + (low > 0.0f ? 0.0f : low);
}

OP_SPAN1_FMA(f32, celu(x, arg_))

OP_UNARY(.f32 = f32)

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1, "scale of the negative part"),
    {.name = NULL},
};

const gqac_op gqac_op_celu =
    OP_UNARY_ROW(.name = "Celu", .domain = "", .since = 12, .introduced = 12, .attrs = attrs,
                 .doc = "y = max(0, x) + min(0, alpha (exp(x / alpha) - 1))");
