/* SimplifiedLayerNormalization, in the default domain as ONNX Runtime writes it: RMS norm over the
 * axes from `axis` on, computed in fp32 and rounded once. */
#include "ops/build.h"
#include "ops/norm.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return norm_infer(node, &norm_rms, diag);
}

static gqac_status eval(op_call *call) {
    return norm_eval(call, &norm_rms);
}

/* RMSNormalization rounds before it scales. In fp32 it does not round, and a Cast after it rounds
 * once, as here. */
static bool standard(ir_builder *b, ir_node *node, ir_value **results) {
    const gqac_dtype dtype = op_in_type(node, 0).dtype;
    ir_value *in[2] = {ir_node_input(node, 0), ir_node_input(node, 1)};
    const ir_value *inverse = ir_node_output(node, 1);
    const bool wide = dtype == GQAC_F32;
    if ((inverse && !ir_value_unused(inverse)) || dtype == GQAC_NONE || dtype == GQAC_F64)
        return false;
    for (int i = 0; i < 2 && !wide; i++)
        in[i] = op_build_cast(b, in[i], GQAC_F32);
    results[0] = OP_BUILD(b, "RMSNormalization", .in = {in[0], in[1]}, .of = node,
                          .same = {"axis", "epsilon"});
    if (!wide)
        results[0] = op_build_cast(b, results[0], dtype);
    return true;
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
    .standard = standard,
    .mixes = norm_mixes,
};
