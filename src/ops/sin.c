/* Sin: y = sin(x). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"

OP_SPAN1(f32, float, gqn_sinf(x))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_sin =
    OP_UNARY_ROW(.name = "Sin", .domain = "", .since = 7, .doc = "y = sin(x)");
