/* Sqrt: y = sqrt(x), correctly rounded. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include <math.h>

#include "numerics/dialect.h"

OP_SPAN1(f32, float, gqn_sqrt(x))
OP_SPAN1(f64, double, sqrt(x))

OP_UNARY(.f32 = f32, .f64 = f64)

const gqac_op gqac_op_sqrt = {
    .schema = {.name = "Sqrt",
               .domain = "",
               .since = 13,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = sqrt(x)"},
    .infer = infer,
    .eval = eval,
};
