/* Sqrt: y = sqrt(x), correctly rounded. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include <math.h>

#include "numerics/dialect.h"
#include "ops/kernel.h"

OP_SPAN1(f32, float, op_one_nan(gqn_sqrt(x)))
OP_SPAN1(f64, double, sqrt(x))

OP_UNARY(.f32 = f32, .f64 = f64)

const gqac_op gqac_op_sqrt =
    OP_UNARY_ROW(.name = "Sqrt", .domain = "", .since = 13, .doc = "y = sqrt(x)");
