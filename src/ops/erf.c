/* Erf: y = erf(x). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

OP_SPAN1_FMA(f32, gqn_erff(x))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_erf = {
    .schema = {.name = "Erf",
               .domain = "",
               .since = 13,
               .introduced = 9,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = erf(x)"},
    .infer = infer,
    .eval = eval,
};
