/* Or: c = a or b. Source: ONNX operator spec. */
#include "ops/shared.h"

OP_SPAN2(logic, uint8_t, uint8_t, a || b)

static const op_compare kernel = {.logic = logic};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_compare_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_compare_eval(call, &kernel);
}

const gqac_op gqac_op_or = {
    .schema = {.name = "Or",
               .domain = "",
               .since = 7,
               .inputs = "a b",
               .outputs = "c",
               .flags = IR_OP_COMMUTATIVE,
               .rows = IR_ROWS_LOCAL,
               .doc = "c = a or b, broadcast"},
    .infer = infer,
    .eval = eval,
};
