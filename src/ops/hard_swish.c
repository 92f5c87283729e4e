/* HardSwish: y = x max(0, min(1, x / 6 + 1 / 2)). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"

static inline float hard_swish(float x) {
    float y = gqn_div(x, 6.0f) + 0.5f;
    return x * (y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y);
}

OP_SPAN1(f32, float, hard_swish(x))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_hard_swish =
    OP_UNARY_ROW(.name = "HardSwish", .domain = "", .since = 14, .introduced = 14,
                 .doc = "y = x max(0, min(1, x / 6 + 1 / 2))");
