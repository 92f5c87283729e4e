/* Exp: y = exp(x). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

OP_SPAN1_FMA(f32, gqn_expf(x))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_exp =
    OP_UNARY_ROW(.name = "Exp", .domain = "", .since = 13, .doc = "y = exp(x)");
