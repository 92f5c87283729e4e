/* QuickGelu: y = x sigmoid(alpha x). Source: ONNX Runtime contrib operators. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

static inline float quick_gelu(float x, const float *alpha) {
    return op_one_nan(x * gqn_sigmoidf(*alpha * x));
}

OP_SPAN1_FMA(span, quick_gelu(x, arg_))

OP_UNARY(.f32 = span)

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1.702f, "factor inside the sigmoid"),
    {.name = NULL},
};

const gqac_op gqac_op_quick_gelu =
    OP_UNARY_ROW(.name = "QuickGelu", .domain = "com.microsoft", .since = 1, .attrs = attrs,
                 .doc = "y = x sigmoid(alpha x)");
