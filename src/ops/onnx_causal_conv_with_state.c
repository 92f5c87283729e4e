/* CausalConvWithState: causal depthwise convolution that keeps the last elements of earlier calls.
 * Source: ONNX operator spec, 27. */
#include "ops/causal_conv.h"

static const ir_attr_spec attrs[] = {CAUSAL_CONV_ACTIVATION, {.name = NULL}};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return causal_conv_infer(node, 1, diag);
}

static gqac_status eval(op_call *call) {
    return causal_conv_eval(call, 1);
}

const gqac_op gqac_op_onnx_causal_conv_with_state = {
    .schema = {.name = "CausalConvWithState",
               .domain = "",
               .since = 27,
               .introduced = 27,
               .inputs = "input weight bias? past_state?",
               .outputs = "output present_state?",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "causal depthwise convolution of [B,C,S] after past_state [B,C,k-1]"},
    .infer = infer,
    .verify = causal_conv_verify,
    .eval = eval,
    .mixes = causal_conv_mixes,
};
