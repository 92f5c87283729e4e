/* Relu: y = max(x, 0); NaN stays. Source: ONNX operator spec. */
#include "ops/shared.h"

OP_SPAN1(f32, float, x < 0.0f ? 0.0f : x)
OP_SPAN1(f64, double, x < 0.0 ? 0.0 : x)
OP_SPAN1(i64, int64_t, x < 0 ? 0 : x)

static const op_unary kernel = {.f32 = f32, .f64 = f64, .i64 = i64, .not_for = OP_UNSIGNED};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_unary_eval(call, &kernel, NULL);
}

const gqac_op gqac_op_relu = {
    .schema = {.name = "Relu",
               .domain = "",
               .since = 14,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = max(x, 0)"},
    .infer = infer,
    .eval = eval,
};
