/* Abs: y = |x|; the least integer wraps to itself. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include <math.h>

#include "numerics/math.h"

OP_SPAN1(f32, float, gqn_abs(x))
OP_SPAN1(f64, double, fabs(x))
OP_SPAN1(i64, int64_t, x < 0 ? op_wrap_sub(0, x) : x)

OP_UNARY(.f32 = f32, .f64 = f64, .i64 = i64, .not_for = OP_BIT(U64))

const gqac_op gqac_op_abs =
    OP_UNARY_ROW(.name = "Abs", .domain = "", .since = 13, .doc = "y = |x|");
