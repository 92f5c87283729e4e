/* Ceil: y = ceil(x). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include <math.h>

OP_SPAN1(f32, float, ceilf(x))
OP_SPAN1(f64, double, ceil(x))

OP_UNARY(.f32 = f32, .f64 = f64)

const gqac_op gqac_op_ceil =
    OP_UNARY_ROW(.name = "Ceil", .domain = "", .since = 13, .doc = "y = ceil(x)");
