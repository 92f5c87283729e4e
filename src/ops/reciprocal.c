/* Reciprocal: y = 1/x, correctly rounded. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/dialect.h"

OP_SPAN1(f32, float, gqn_div(1.0f, x))
OP_SPAN1(f64, double, 1.0 / x)

OP_UNARY(.f32 = f32, .f64 = f64)

const gqac_op gqac_op_reciprocal =
    OP_UNARY_ROW(.name = "Reciprocal", .domain = "", .since = 13, .doc = "y = 1/x");
