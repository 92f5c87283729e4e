/* Round: nearest integer, halves to even. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include <math.h>

#include "numerics/convert.h"

/* Not rint: that follows the rounding mode of the thread. */
static double round_even(double x) {
    double up = floor(x), rest = x - up;
    if (rest > 0.5 || (rest == 0.5 && fmod(up, 2.0) != 0.0))
        up += 1.0;
    return copysign(up, x);
}

OP_SPAN1(f32, float, gqn_round_even(x))
OP_SPAN1(f64, double, round_even(x))

OP_UNARY(.f32 = f32, .f64 = f64)

const gqac_op gqac_op_round =
    OP_UNARY_ROW(.name = "Round", .domain = "", .since = 11, .introduced = 11,
                 .doc = "y = x rounded to the nearest integer, halves to even");
