/* Add: c = a + b. Source: ONNX operator spec. */
#include "ops/elementwise.h"
#include "ops/kernel.h"

OP_SPAN2(f32, float, float, op_one_nan(a + b))
OP_SPAN2(f64, double, double, a + b)
OP_SPAN2(i64, int64_t, int64_t, op_wrap_add(a, b))

OP_BINARY(.f32 = f32, .f64 = f64, .i64 = i64, .dim = ir_dim_add)

const gqac_op gqac_op_add =
    OP_BINARY_ROW(.name = "Add", .domain = "", .since = 14, .flags = IR_OP_COMMUTATIVE,
                  .doc = "c = a + b, broadcast");
