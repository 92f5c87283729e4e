/* com.microsoft.QMoE: a mixture of experts with weights in codes of 2, 4 or 8 bits, low bits first,
 * (code - zero point) * scale, one scale for a row or for each block of it; see ops/moe.h. The
 * products are fp32, whatever accuracy_level allows. */
#include "ops/moe.h"

#include <string.h>

enum { OTHER_SCALES = 15, LAST = 20 };

static const char *const bits_names[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
                                         "fc3_expert_weight_bits"};

static const ir_attr_spec attrs[] = {
    MOE_ATTRS,
    OP_ATTR_INT("expert_weight_bits", 4, "bits of a code: 2, 4 or 8"),
    {.name = "fc1_expert_weight_bits", .kind = IR_ATTR_INT, .doc = "bits of fc1, if different"},
    {.name = "fc2_expert_weight_bits", .kind = IR_ATTR_INT, .doc = "bits of fc2, if different"},
    {.name = "fc3_expert_weight_bits", .kind = IR_ATTR_INT, .doc = "bits of fc3, if different"},
    OP_ATTR_INT("block_size", 0, "elements of a row that share a scale; 0: all"),
    OP_ATTR_STRING("quant_type", "int", "only int"),
    OP_ATTR_INT("accuracy_level", 0, "least accuracy; products are fp32 at every level"),
    OP_ATTR_INT("weights_prepacked", -1, "only -1 and 0"),
    OP_ATTR_INT("swiglu_limit_after_activation", 0, "only 0"),
    {.name = NULL},
};

int64_t moe_bits(const ir_node *node, int fc) {
    return ir_attr_int(node, ir_attr_is_set(node, bits_names[fc]) ? bits_names[fc]
                                                                  : "expert_weight_bits");
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const int64_t block = ir_attr_int(node, "block_size");
    for (int fc = 0; fc < 3; fc++)
        if (moe_bits(node, fc) != 2 && moe_bits(node, fc) != 4 && moe_bits(node, fc) != 8)
            OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                    "attribute expert_weight_bits = %lld: must be 2, 4 or 8",
                    (long long)moe_bits(node, fc));
    if (block != 0 && (block < 16 || (block & (block - 1)) != 0))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute block_size = %lld: must be 0 or a power of two that is at least 16",
                (long long)block);
    if (strcmp(ir_attr_get(node, "quant_type")->s, "int") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute quant_type = '%s': only int is supported",
                ir_attr_get(node, "quant_type")->s);
    if (ir_attr_int(node, "swiglu_limit_after_activation") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "attribute swiglu_limit_after_activation: only 0 is supported");
    if (ir_attr_int(node, "weights_prepacked") > 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute weights_prepacked = %lld: must be -1 or 0",
                (long long)ir_attr_int(node, "weights_prepacked"));
    for (int i = OTHER_SCALES; i <= LAST; i++)
        if (ir_node_input(node, i))
            OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                    "input %d is not supported: it is for codes that are not integers", i);
    return moe_verify(node, diag);
}

moe_form moe_code_form(const ir_node *node) {
    moe_form form = moe_form_of(node);
    for (int i = 0; i < 3; i++) {
        form.bits[i] = (int)moe_bits(node, i);
        form.block[i] = ir_attr_int(node, "block_size");
    }
    return form;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const moe_form form = moe_code_form(node);
    return moe_infer(node, &form, moe_read_files, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(verify(call->node, call->diag));
    const moe_form form = moe_code_form(call->node);
    return moe_eval(call, &form, moe_read_files);
}

const gqac_op gqac_op_qmoe = {
    .schema = {.name = "QMoE",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "input router_probs fc1_experts_weights fc1_scales? fc1_experts_bias? "
                         "fc2_experts_weights fc2_scales? fc2_experts_bias? fc3_experts_weights? "
                         "fc3_scales? fc3_experts_bias? fc1_zero_points? fc2_zero_points? "
                         "fc3_zero_points? router_weights? fc1_global_scale? fc2_global_scale? "
                         "fc1_act_scale? fc2_act_scale? fc1_act_block_scale? fc2_act_block_scale?",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "MoE with block-quantised weights"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
