/* SimplifiedLayerNormalization, in the default domain as ONNX Runtime writes it: RMS norm over the
 * axes from `axis` on, computed in fp32 and rounded once. */
#include "ops/norm.h"

static const norm kind = {.sum_output = -1, .mean_output = -1, .inv_output = 1};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return norm_infer(node, &kind, diag);
}

static gqac_status eval(op_call *call) {
    return norm_eval(call, &kind);
}

const gqac_op gqac_op_simplified_layer_normalization = {
    .schema = {.name = "SimplifiedLayerNormalization",
               .domain = "",
               .since = 1,
               .inputs = "X scale",
               .outputs = "Y inv_std_var?",
               .attrs = norm_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "Y = X / sqrt(mean(X^2) + epsilon) * scale, rounded once"},
    .infer = infer,
    .verify = norm_verify,
    .eval = eval,
    .mixes = norm_mixes,
};
