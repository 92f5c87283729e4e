/* Sign: -1, 0 or 1; -0 and NaN stay. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN1(f32, float, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)
OP_SPAN1(f64, double, x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x)
OP_SPAN1(i64, int64_t, (x > 0) - (x < 0))

OP_UNARY(.f32 = f32, .f64 = f64, .i64 = i64, .not_for = OP_BIT(U64))

const gqac_op gqac_op_sign = OP_UNARY_ROW(.name = "Sign", .domain = "", .since = 13,
                                          .introduced = 9, .doc = "y = -1, 0 or 1, the sign of x");
