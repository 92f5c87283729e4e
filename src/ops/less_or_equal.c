/* LessOrEqual: c = a <= b. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_COMPARISON(<=)

static int dim(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    return op_dim_not_less(dims, b, a);
}

OP_COMPARE(.f32 = f32, .f64 = f64, .i64 = i64, .u64 = u64, .dim = dim)

const gqac_op gqac_op_less_or_equal =
    OP_BINARY_ROW(.name = "LessOrEqual", .domain = "", .since = 16, .introduced = 12,
                  .doc = "c = a <= b, broadcast");
