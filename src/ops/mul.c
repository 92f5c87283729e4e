/* Mul: c = a * b. Source: ONNX operator spec. */
#include "ops/shared.h"

OP_SPAN2(f32, float, float, a *b)
OP_SPAN2(f64, double, double, a *b)
OP_SPAN2(i64, int64_t, int64_t, op_wrap_mul(a, b))

static const op_binary kernel = {.f32 = f32, .f64 = f64, .i64 = i64, .dim = ir_dim_mul};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_binary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_binary_eval(call, &kernel);
}

const gqac_op gqac_op_mul = {
    .schema = {.name = "Mul",
               .domain = "",
               .since = 14,
               .inputs = "a b",
               .outputs = "c",
               .flags = IR_OP_COMMUTATIVE,
               .rows = IR_ROWS_LOCAL,
               .doc = "c = a * b, broadcast"},
    .infer = infer,
    .eval = eval,
};
