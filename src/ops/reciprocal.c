/* Reciprocal: y = 1/x, correctly rounded. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/dialect.h"

OP_SPAN1(f32, float, gqn_div(1.0f, x))
OP_SPAN1(f64, double, 1.0 / x)

OP_UNARY(.f32 = f32, .f64 = f64)

const gqac_op gqac_op_reciprocal = {
    .schema = {.name = "Reciprocal",
               .domain = "",
               .since = 13,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = 1/x"},
    .infer = infer,
    .eval = eval,
};
