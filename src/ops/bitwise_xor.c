/* BitwiseXor: c = a ^ b, on integers. Source: ONNX operator spec. */
#include "ops/shared.h"

OP_SPAN2(i64, int64_t, int64_t, a ^ b)

static const op_binary kernel = {.i64 = i64};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_binary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_binary_eval(call, &kernel);
}

const gqac_op gqac_op_bitwise_xor = {
    .schema = {.name = "BitwiseXor",
               .domain = "",
               .since = 18,
               .introduced = 18,
               .inputs = "a b",
               .outputs = "c",
               .flags = IR_OP_COMMUTATIVE,
               .rows = IR_ROWS_LOCAL,
               .doc = "bitwise exclusive or of integers, broadcast"},
    .infer = infer,
    .eval = eval,
};
