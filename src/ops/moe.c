/* com.microsoft.MoE: a mixture of experts with float weights; see ops/moe.h. */
#include "ops/moe.h"

static const ir_attr_spec attrs[] = {MOE_ATTRS, {.name = NULL}};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const moe_form form = moe_form_of(node);
    return moe_infer(node, &form, moe_read_files, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(moe_verify(call->node, call->diag));
    const moe_form form = moe_form_of(call->node);
    return moe_eval(call, &form, moe_read_files);
}

const gqac_op gqac_op_moe = {
    .schema = {.name = "MoE",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "input router_probs fc1_experts_weights fc1_experts_bias? "
                         "fc2_experts_weights fc2_experts_bias? fc3_experts_weights? "
                         "fc3_experts_bias?",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "the k best experts of each row, weighted by the router"},
    .infer = infer,
    .verify = moe_verify,
    .eval = eval,
};
