/* RMSNormalization: as ONNX defines it, the normalised value is rounded to X's type before it is
 * multiplied by the scale, whose type Y has. */
#include "ops/norm.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return norm_infer(node, &norm_rms_onnx, diag);
}

static gqac_status eval(op_call *call) {
    return norm_eval(call, &norm_rms_onnx);
}

const gqac_op gqac_op_rms_normalization = {
    .schema = {.name = "RMSNormalization",
               .domain = "",
               .since = 23,
               .introduced = 23,
               .inputs = "X scale",
               .outputs = "Y",
               .attrs = norm_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "Y = cast(X / sqrt(mean(X^2) + epsilon)) * scale"},
    .infer = infer,
    .verify = norm_verify,
    .eval = eval,
    .mixes = norm_mixes,
};
