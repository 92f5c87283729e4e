/* Shrink: y = x + bias for x < -lambd, x - bias for x > lambd, else 0, also for NaN. Source: ONNX
 * operator spec. */
#include "ops/elementwise.h"

static inline float shrink(float x, const float *of) {
    return x < -of[1] ? x + of[0] : x > of[1] ? x - of[0] : 0.0f;
}

OP_SPAN1(f32, float, shrink(x, arg_))

OP_UNARY(.f32 = f32)

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("bias", 0, "subtracted towards 0"),
    OP_ATTR_FLOAT("lambd", 0.5f, "half the width of the zeros"),
    {.name = NULL},
};

const gqac_op gqac_op_shrink =
    OP_UNARY_ROW(.name = "Shrink", .domain = "", .since = 9, .introduced = 9, .attrs = attrs,
                 .doc = "y = x + bias, 0 or x - bias, below, within and above [-lambd, lambd]");
