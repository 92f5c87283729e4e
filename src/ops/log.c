/* Log: y = log(x). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/math.h"
#include "ops/kernel.h"

OP_SPAN1_FMA(f32, gqn_logf(x))

OP_UNARY(.f32 = f32)

const gqac_op gqac_op_log = {
    .schema = {.name = "Log",
               .domain = "",
               .since = 13,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = log(x)"},
    .infer = infer,
    .eval = eval,
};
