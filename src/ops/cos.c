/* Cos: y = cos(x). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"

OP_SPAN1(f32, float, gqn_cosf(x))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_cos =
    OP_UNARY_ROW(.name = "Cos", .domain = "", .since = 7, .doc = "y = cos(x)");
