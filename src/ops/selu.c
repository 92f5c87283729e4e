/* Selu: y = gamma (alpha exp(x) - alpha) for x <= 0, else gamma x. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

static inline float selu(float x, const float *of) {
    return of[1] * (x <= 0.0f ? of[0] * gqn_expf(x) - of[0] : x);
}

OP_SPAN1_FMA(f32, selu(x, arg_))

OP_UNARY(.f32 = f32)

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1.67326319217681884765625f, "scale of the exponential"),
    OP_ATTR_FLOAT("gamma", 1.05070102214813232421875f, "scale of the result"),
    {.name = NULL},
};

const gqac_op gqac_op_selu =
    OP_UNARY_ROW(.name = "Selu", .domain = "", .since = 6, .attrs = attrs,
                 .doc = "y = gamma x, gamma (alpha exp(x) - alpha) where x <= 0");
