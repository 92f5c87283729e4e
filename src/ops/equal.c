/* Equal: c = a == b. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN2(f32, uint8_t, float, a == b)
OP_SPAN2(f64, uint8_t, double, a == b)
OP_SPAN2(i64, uint8_t, int64_t, a == b)
OP_SPAN2(logic, uint8_t, uint8_t, !a == !b)

static int dim(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    if (a == b)
        return 1;
    return op_dim_less(dims, a, b) == 1 || op_dim_less(dims, b, a) == 1 ? 0 : -1;
}

OP_COMPARE(.f32 = f32, .f64 = f64, .i64 = i64, .logic = logic, .dim = dim)

const gqac_op gqac_op_equal =
    OP_BINARY_ROW(.name = "Equal", .domain = "", .since = 13, .flags = IR_OP_COMMUTATIVE,
                  .doc = "c = a == b, broadcast");
