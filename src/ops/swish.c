/* Swish: y = x sigmoid(alpha x). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

static inline float swish(float x, const float *alpha) {
    return op_one_nan(x * gqn_sigmoidf(*alpha * x));
}

OP_SPAN1_FMA(f32, swish(x, arg_))

OP_UNARY(.f32 = f32)

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1, "factor inside the sigmoid"),
    {.name = NULL},
};

const gqac_op gqac_op_swish =
    OP_UNARY_ROW(.name = "Swish", .domain = "", .since = 24, .introduced = 24, .attrs = attrs,
                 .doc = "y = x sigmoid(alpha x)");
