/* Identity: output = input. Source: ONNX operator spec. */
#include "ops/copy.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_set_type_like(node, 0, op_in_type(node, 0), diag));
    return op_pass_elements(node, 0, 0, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    return op_copy_as(call, call->in[0]->rank, call->in[0]->dims);
}

const gqac_op gqac_op_identity = {
    .schema = {.name = "Identity",
               .domain = "",
               .since = 13,
               .inputs = "input",
               .outputs = "output",
               .flags = IR_OP_IN_PLACE | IR_OP_MOVES,
               .rows = IR_ROWS_LOCAL,
               .doc = "output = input"},
    .infer = infer,
    .eval = eval,
};
