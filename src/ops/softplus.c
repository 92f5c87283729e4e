/* Softplus: y = log(1 + exp(x)). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

OP_SPAN1_FMA(f32, gqn_softplusf(x))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_softplus =
    OP_UNARY_ROW(.name = "Softplus", .domain = "", .since = 1, .doc = "y = log(1 + exp(x))");
