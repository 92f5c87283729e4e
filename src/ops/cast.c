/* Cast: output = input as the type `to`; see cast_shared.c for what ONNX leaves open. Source: ONNX
 * operator spec. saturate and round_mode concern 8-bit floats only. */
#include "ops/shared.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_cast_infer(node, ir_attr_get(node, "to")->dtype, diag);
}

static gqac_status eval(op_call *call) {
    return op_cast(call, ir_attr_get(call->node, "to")->dtype);
}

static const ir_attr_spec attrs[] = {
    {.name = "to", .kind = IR_ATTR_DTYPE, .required = true, .doc = "type of the result"},
    OP_ATTR_INT("saturate", 1, "for 8-bit floats only"),
    {.name = "round_mode", .kind = IR_ATTR_STRING, .doc = "for 8-bit floats only"},
    {.name = NULL},
};

/* The length of an axis, used as a number, depends on the call. */
static bool mixes(const ir_node *node) {
    const ir_value *x = ir_node_input(node, 0);
    return x && x->elements && OP_IN(OP_FLOATS, ir_attr_get(node, "to")->dtype);
}

const gqac_op gqac_op_cast = {
    .schema = {.name = "Cast",
               .domain = "",
               .since = 19,
               .inputs = "input",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "output = input as another type"},
    .infer = infer,
    .eval = eval,
    .mixes = mixes,
};
