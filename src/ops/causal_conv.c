/* The causal convolution of CausalConvWithState (causal_conv.h) over packed rows: x [1,C,N] holds
 * the new tokens of n sequences one after another, new_len [n] their numbers, and state [n,C,L] the
 * elements before them. y [1,C,N]. */
#include "ops/causal_conv.h"

enum { NEW_LEN = 4 };

static const ir_attr_spec attrs[] = {
    CAUSAL_CONV_ACTIVATION,
    OP_ATTR_INT("dilation", 1, "elements from one tap to the next"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "dilation", 1, INT32_MAX, diag));
    return causal_conv_verify(node, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_set_type_like(node, 0, op_in_type(node, 0), diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, NEW_LEN, GQAC_I32));
    return causal_conv_run(call, ir_attr_int(call->node, "dilation"), call->in[NEW_LEN]);
}

const gqac_op gqac_op_causal_conv = {
    .schema = {.name = "causal_conv",
               .domain = "gqac",
               .since = 1,
               .inputs = "x weight bias? state new_len",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "causal depthwise convolution of packed rows [1,C,N] after state [n,C,L]"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
