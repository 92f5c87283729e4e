/* Less: c = a < b. Source: ONNX operator spec. */
#include "ops/shared.h"

OP_SPAN2(f32, uint8_t, float, a < b)
OP_SPAN2(f64, uint8_t, double, a < b)
OP_SPAN2(i64, uint8_t, int64_t, a < b)
OP_SPAN2(u64, uint8_t, int64_t, (uint64_t)a < (uint64_t)b)

static const op_compare kernel = {
    .f32 = f32, .f64 = f64, .i64 = i64, .u64 = u64, .dim = op_dim_less};

const gqac_op gqac_op_less = {
    .schema = {.name = "Less",
               .domain = "",
               .since = 13,
               .inputs = "a b",
               .outputs = "c",
               .rows = IR_ROWS_LOCAL,
               .doc = "c = a < b, broadcast"},
    .formula.compare = &kernel,
    .infer = op_compare_infer,
    .eval = op_compare_eval,
};
