/* Min: elementwise minimum of all inputs, from the left; NaN wins. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN2(f32, float, float, a < b || a != a ? a : b)
OP_SPAN2(f64, double, double, a < b || a != a ? a : b)
OP_SPAN2(i64, int64_t, int64_t, a < b ? a : b)
OP_SPAN2(u64, int64_t, int64_t, (uint64_t)a < (uint64_t)b ? a : b)

OP_FOLD(.f32 = f32, .f64 = f64, .i64 = i64, .u64 = u64, .dim = op_dim_min)

const gqac_op gqac_op_min = {
    .schema = {.name = "Min",
               .domain = "",
               .since = 13,
               .inputs = "data+",
               .outputs = "c",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = min of all inputs, broadcast; NaN wins"},
    .infer = infer,
    .eval = eval,
};
