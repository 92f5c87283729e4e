/* HardSigmoid: y = max(0, min(1, alpha x + beta)), product and sum each rounded. Source: ONNX
 * operator spec. */
#include "ops/elementwise.h"

static inline float hard_sigmoid(float x, const float *of) {
    float y = of[0] * x + of[1];
    return y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y;
}

OP_SPAN1(f32, float, hard_sigmoid(x, arg_))

OP_UNARY(.f32 = f32)

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 0.2f, "slope"),
    OP_ATTR_FLOAT("beta", 0.5f, "value at 0"),
    {.name = NULL},
};

const gqac_op gqac_op_hard_sigmoid =
    OP_UNARY_ROW(.name = "HardSigmoid", .domain = "", .since = 6, .attrs = attrs,
                 .doc = "y = max(0, min(1, alpha x + beta))");
