/* Softsign: y = x / (1 + |x|). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"

OP_SPAN1(f32, float, gqn_div(x, 1.0f + gqn_abs(x)))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_softsign =
    OP_UNARY_ROW(.name = "Softsign", .domain = "", .since = 1, .doc = "y = x / (1 + |x|)");
