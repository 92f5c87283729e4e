/* CastLike: output = input as the type of the second input. Source: ONNX operator spec. */
#include "ops/shared.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_cast_infer(node, op_in_type(node, 1).dtype, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 1, GQAC_NONE));
    return op_cast(call, call->in[1]->dtype);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("saturate", 1, "for 8-bit floats only"),
    {.name = "round_mode", .kind = IR_ATTR_STRING, .doc = "for 8-bit floats only"},
    {.name = NULL},
};

const gqac_op gqac_op_cast_like = {
    .schema = {.name = "CastLike",
               .domain = "",
               .since = 19,
               .introduced = 15,
               .inputs = "input target_type",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "output = input as the type of target_type"},
    .infer = infer,
    .eval = eval,
};
