/* LessOrEqual: c = a <= b. Source: ONNX operator spec. */
#include "ops/shared.h"

OP_SPAN2(f32, uint8_t, float, a <= b)
OP_SPAN2(f64, uint8_t, double, a <= b)
OP_SPAN2(i64, uint8_t, int64_t, a <= b)
OP_SPAN2(u64, uint8_t, int64_t, (uint64_t)a <= (uint64_t)b)

static int dim(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    int less = op_dim_less(dims, b, a);
    return less < 0 ? -1 : !less;
}

static const op_compare kernel = {.f32 = f32, .f64 = f64, .i64 = i64, .u64 = u64, .dim = dim};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_compare_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_compare_eval(call, &kernel);
}

const gqac_op gqac_op_less_or_equal = {
    .schema = {.name = "LessOrEqual",
               .domain = "",
               .since = 16,
               .introduced = 12,
               .inputs = "a b",
               .outputs = "c",
               .rows = IR_ROWS_LOCAL,
               .doc = "c = a <= b, broadcast"},
    .infer = infer,
    .eval = eval,
};
