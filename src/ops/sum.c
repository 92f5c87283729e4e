/* Sum: elementwise sum of all inputs, from the left. Source: ONNX operator spec. */
#include "ops/shared.h"

OP_SPAN2(f32, float, float, a + b)
OP_SPAN2(f64, double, double, a + b)

static const op_binary kernel = {.f32 = f32, .f64 = f64};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_fold_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_fold_eval(call, &kernel);
}

const gqac_op gqac_op_sum = {
    .schema = {.name = "Sum",
               .domain = "",
               .since = 8,
               .inputs = "data+",
               .outputs = "sum",
               .rows = IR_ROWS_LOCAL,
               .doc = "sum of all inputs, broadcast"},
    .infer = infer,
    .eval = eval,
};
