/* Sub: c = a - b. Source: ONNX operator spec. */
#include "ops/elementwise.h"
#include "ops/kernel.h"

OP_SPAN2(f32, float, float, op_one_nan(a - b))
OP_SPAN2(f64, double, double, a - b)
OP_SPAN2(i64, int64_t, int64_t, op_wrap_sub(a, b))

OP_BINARY(.f32 = f32, .f64 = f64, .i64 = i64, .dim = ir_dim_sub)

const gqac_op gqac_op_sub =
    OP_BINARY_ROW(.name = "Sub", .domain = "", .since = 14, .doc = "c = a - b, broadcast");
