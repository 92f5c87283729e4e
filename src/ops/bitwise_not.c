/* BitwiseNot: y = ~x, on integers. Source: ONNX operator spec. */
#include "ops/shared.h"

OP_SPAN1(i64, int64_t, ~x)

static const op_unary kernel = {.i64 = i64};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_unary_eval(call, &kernel, NULL);
}

const gqac_op gqac_op_bitwise_not = {
    .schema = {.name = "BitwiseNot",
               .domain = "",
               .since = 18,
               .introduced = 18,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = ~x, on integers"},
    .infer = infer,
    .eval = eval,
};
