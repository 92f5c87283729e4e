/* LayerNormalization over the axes from `axis` on, computed in fp32 and rounded once. */
#include "ops/norm.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return norm_infer(node, &norm_layer, diag);
}

static gqac_status eval(op_call *call) {
    return norm_eval(call, &norm_layer);
}

const gqac_op gqac_op_layer_normalization = {
    .schema = {.name = "LayerNormalization",
               .domain = "",
               .since = 17, /* ONNX Runtime accepts it before, and its optimiser writes it */
               .inputs = "X Scale B?",
               .outputs = "Y Mean? InvStdDev?",
               .attrs = norm_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "Y = (X - mean) / sqrt(var + epsilon) * Scale + B"},
    .infer = infer,
    .verify = norm_verify,
    .eval = eval,
    .mixes = norm_mixes,
};
