/* moe: MoE and QMoE on constant weights that a target has packed; see ops/moe.h. */
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/nbits.h"

static const char *const bits_names[] = {"fc1_bits", "fc2_bits", "fc3_bits"};
static const char *const block_names[] = {"fc1_block", "fc2_block", "fc3_block"};

#define PROJECTION(bits_name, block_name)                                                          \
    OP_ATTR_INT(bits_name, 0, "bits of a code: 2, 4 or 8; 0: floats"),                             \
        OP_ATTR_INT(block_name, 32, "k that share a scale: a power of two, 16 to 512")
static const ir_attr_spec attrs[] = {
    MOE_ATTRS,
    PROJECTION("fc1_bits", "fc1_block"),
    PROJECTION("fc2_bits", "fc2_block"),
    PROJECTION("fc3_bits", "fc3_block"),
    {.name = "inner", .kind = IR_ATTR_INT, .required = true, .doc = "columns of fc2"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "inner", 1, INT32_MAX / 2, diag));
    for (int i = 0; i < 3; i++) {
        const int64_t bits = ir_attr_int(node, bits_names[i]);
        if (bits != 0 && bits != 2 && bits != 4 && bits != 8)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute %s = %lld: must be 0, 2, 4 or 8",
                    bits_names[i], (long long)bits);
        GQAC_TRY(op_check_block(node, block_names[i], NBITS_MAX_BLOCK, diag));
    }
    return moe_verify(node, diag);
}

moe_form moe_packed_form(const ir_node *node) {
    moe_form f = moe_form_of(node);
    f.inner = ir_attr_int(node, "inner");
    for (int i = 0; i < 3; i++) {
        f.bits[i] = (int)ir_attr_int(node, bits_names[i]);
        f.block[i] = ir_attr_int(node, block_names[i]);
    }
    return f;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const moe_form form = moe_packed_form(node);
    return moe_infer(node, &form, moe_read_ours, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(verify(call->node, call->diag));
    const moe_form form = moe_packed_form(call->node);
    return moe_eval(call, &form, moe_read_ours);
}

const gqac_op gqac_op_moe_packed = {
    .schema = {.name = "moe",
               .domain = "gqac",
               .since = 1,
               .inputs = "input router_probs fc1 fc1_scales? fc1_bias? fc2 fc2_scales? fc2_bias? "
                         "fc3? fc3_scales? fc3_bias? fc1_zero_points? fc2_zero_points? "
                         "fc3_zero_points? router_weights?",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "MoE, QMoE: the k best experts of each row, weights packed"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
