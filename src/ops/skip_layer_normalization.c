/* com.microsoft.SkipLayerNormalization: layer norm of input + skip (+ bias). Output 3 is that sum.
 */
#include "ops/norm.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return norm_infer(node, &norm_skip_layer, diag);
}

static gqac_status eval(op_call *call) {
    return norm_eval(call, &norm_skip_layer);
}

const gqac_op gqac_op_skip_layer_normalization = {
    .schema =
        {.name = "SkipLayerNormalization",
         .domain = "com.microsoft",
         .since = 1,
         .inputs = "input skip gamma beta? bias?",
         .outputs = "output mean? inv_std_var? input_skip_bias_sum?",
         .attrs = norm_skip_attrs,
         .rows = IR_ROWS_SHAPE,
         .doc =
             "x = input + skip + bias; output = (x - mean) / sqrt(var + epsilon) * gamma + beta"},
    .infer = infer,
    .verify = norm_verify,
    .eval = eval,
    .mixes = norm_mixes,
};
