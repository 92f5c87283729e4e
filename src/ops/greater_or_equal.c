/* GreaterOrEqual: c = a >= b. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_COMPARISON(>=)

OP_COMPARE(.f32 = f32, .f64 = f64, .i64 = i64, .u64 = u64, .dim = op_dim_not_less)

const gqac_op gqac_op_greater_or_equal =
    OP_BINARY_ROW(.name = "GreaterOrEqual", .domain = "", .since = 16, .introduced = 12,
                  .doc = "c = a >= b, broadcast");
