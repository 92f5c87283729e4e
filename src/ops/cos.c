/* Cos: y = cos(x). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"

OP_SPAN1(f32, float, gqn_cosf(x))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_cos = {
    .schema = {.name = "Cos",
               .domain = "",
               .since = 7,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = cos(x)"},
    .infer = infer,
    .eval = eval,
};
