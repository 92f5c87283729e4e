/* Neg: y = -x; the least integer wraps to itself. Source: ONNX operator spec. */
#include "ops/elementwise.h"
#include "ops/kernel.h"

OP_SPAN1(f32, float, op_one_nan(-x))
OP_SPAN1(f64, double, -x)
OP_SPAN1(i64, int64_t, op_wrap_sub(0, x))

static const ir_dim *dim(ir_dims *dims, const ir_dim *x) {
    return ir_dim_sub(dims, ir_dim_const(dims, 0), x);
}

OP_UNARY(.f32 = f32, .f64 = f64, .i64 = i64, .not_for = OP_UNSIGNED, .dim = dim)

const gqac_op gqac_op_neg = OP_UNARY_ROW(.name = "Neg", .domain = "", .since = 13, .doc = "y = -x");
