/* Relu: y = max(x, 0); NaN stays. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN1(f32, float, x < 0.0f ? 0.0f : x)
OP_SPAN1(f64, double, x < 0.0 ? 0.0 : x)
OP_SPAN1(i64, int64_t, x < 0 ? 0 : x)

OP_UNARY(.f32 = f32, .f64 = f64, .i64 = i64, .not_for = OP_UNSIGNED)

const gqac_op gqac_op_relu =
    OP_UNARY_ROW(.name = "Relu", .domain = "", .since = 14, .doc = "y = max(x, 0)");
