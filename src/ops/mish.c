/* Mish: y = x tanh(softplus(x)). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

OP_SPAN1_FMA(f32, x *gqn_tanhf(gqn_softplusf(x)))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_mish = OP_UNARY_ROW(.name = "Mish", .domain = "", .since = 22,
                                          .introduced = 18, .doc = "y = x tanh(log(1 + exp(x)))");
