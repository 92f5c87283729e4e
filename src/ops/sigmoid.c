/* Sigmoid: y = 1/(1+exp(-x)). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

OP_SPAN1_FMA(f32, gqn_sigmoidf(x))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_sigmoid =
    OP_UNARY_ROW(.name = "Sigmoid", .domain = "", .since = 13, .doc = "y = 1/(1+exp(-x))");
