/* Sum: elementwise sum of all inputs, from the left. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN2(f32, float, float, a + b)
OP_SPAN2(f64, double, double, a + b)

OP_FOLD(.f32 = f32, .f64 = f64)

const gqac_op gqac_op_sum = {
    .schema = {.name = "Sum",
               .domain = "",
               .since = 8,
               .inputs = "data+",
               .outputs = "sum",
               .rows = IR_ROWS_LOCAL,
               .doc = "sum of all inputs, broadcast"},
    .infer = infer,
    .eval = eval,
};
