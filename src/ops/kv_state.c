/* The KV state of one past/present pair of a sequence: the token by which its appends are ordered.
 * It has no eval: targets have a kernel for it. */
#include "ops/shared.h"

static const ir_attr_spec attrs[] = {
    {"slot", IR_ATTR_INT, .required = true, .doc = "number of the pair"},
    {"past", IR_ATTR_STRING, .required = true, .doc = "graph input of the exported model"},
    {"present", IR_ATTR_STRING, .required = true, .doc = "graph output of the exported model"},
    {"heads", IR_ATTR_INT, .required = true, .doc = "heads of keys, values or states"},
    {"head_size", IR_ATTR_INT, .required = true, .doc = "elements of a head"},
    OP_ATTR_INT("rows", 0, "of a state; 0: one for each token"),
    {"dtype", IR_ATTR_DTYPE, .required = true, .doc = "element type of the rows"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const gqac_dtype dtype = ir_attr_get(node, "dtype")->dtype;
    if (ir_attr_int(node, "slot") < 0 || ir_attr_int(node, "heads") < 1 ||
        ir_attr_int(node, "head_size") < 1 || ir_attr_int(node, "rows") < 0 ||
        !OP_IN(OP_ANY, dtype))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute slot, heads, head_size, rows or dtype is out of range");
    if (ir_attr_int(node, "rows") > 0 &&
        !OP_IN(OP_FLOATS, dtype)) /* the types in which a recurrence computes */
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "a state has type %s: must be f32, f16 or bf16",
                gqac_dtype_name(dtype));
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_set_type(node, 0, GQAC_TOKEN, 0, NULL, diag);
}

static gqac_status eval(op_call *call) {
    OP_FAIL(call->node, call->diag, GQAC_INTERNAL, "KV state exists only in a step of a sequence");
}

const gqac_op gqac_op_kv_state = {
    .schema = {.name = "kv_state",
               .domain = "gqac",
               .since = 1,
               .inputs = "",
               .outputs = "token",
               .attrs = attrs,
               .flags = IR_OP_EFFECT | IR_OP_NO_FOLD,
               .rows = IR_ROWS_STATE,
               .doc = "the cached rows, or the state, of one past/present pair"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
