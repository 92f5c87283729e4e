/* com.microsoft.CausalConvWithState: that of ONNX, with a dilation. Only one spatial axis, channels
 * first, and one state are supported. Source: ONNX Runtime contrib operators. */
#include "ops/causal_conv.h"

#include <string.h>

static const ir_attr_spec attrs[] = {
    CAUSAL_CONV_ACTIVATION,
    OP_ATTR_INT("dilation", 1, "distance between taps"),
    OP_ATTR_INT("ndim", 1, "only 1"),
    OP_ATTR_INT("channels_last", 0, "only 0"),
    OP_ATTR_INT("state_window", 0, "only 0"),
    OP_ATTR_INT("input_channels", 0, "only 0"),
    OP_ATTR_INT("input_channel_offset", 0, "only 0"),
    OP_ATTR_INT("state_channels_last", -1, "only -1"),
    OP_ATTR_INT("state_length", 0, "only 0"),
    OP_ATTR_INT("state_update_capacity", 0, "only 0"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    /* Of the integers all but the dilation have one value that is supported, their default. */
    for (const ir_attr_spec *spec = attrs; spec->name; spec++) {
        if (spec->kind != IR_ATTR_INT || !strcmp(spec->name, "dilation"))
            continue;
        const int64_t value = ir_attr_int(node, spec->name), only = spec->fallback.i;
        if (value != only)
            OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute %s = %lld: only %lld is supported",
                    spec->name, (long long)value, (long long)only);
    }
    GQAC_TRY(op_check_int(node, "dilation", 1, INT32_MAX, diag));
    return causal_conv_verify(node, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return causal_conv_infer(node, ir_attr_int(node, "dilation"), diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(verify(call->node, call->diag));
    return causal_conv_eval(call, ir_attr_int(call->node, "dilation"));
}

const gqac_op gqac_op_ms_causal_conv_with_state = {
    .schema = {.name = "CausalConvWithState",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "input weight bias? past_state?",
               .outputs = "output present_state?",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "causal depthwise convolution of [B,C,S] after past_state"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
    .mixes = causal_conv_mixes,
};
