/* Floor: y = floor(x). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include <math.h>

OP_SPAN1(f32, float, floorf(x))
OP_SPAN1(f64, double, floor(x))

OP_UNARY(.f32 = f32, .f64 = f64)

const gqac_op gqac_op_floor =
    OP_UNARY_ROW(.name = "Floor", .domain = "", .since = 13, .doc = "y = floor(x)");
