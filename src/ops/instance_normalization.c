/* InstanceNormalization: each channel normalised over all positions:
 *
 *   y[n,c,...] = (x - mean) / sqrt(var + epsilon) * scale[c] + B[c]
 *
 * with mean and population variance of the channel. Becomes ReduceMean and elementwise ops, in
 * fp32. torch.export writes GroupNorm with it. Source: ONNX operator spec, 22. */
#include "ops/channel_norm.h"
#include "ops/shared.h"

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("epsilon", 1e-5f, "added to the variance"),
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return channel_norm_infer(node, 3, diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    const gqac_dtype dtype = op_in_type(node, 0).dtype;
    ir_value *x = ir_node_input(node, 0), *shape = OP_BUILD(b, "Shape", .in = {x});
    x = channel_norm_rows(b, node, OP_RESHAPE(b, op_build_cast(b, x, GQAC_F32), 0, 0, -1));
    x = OP_BUILD(b, "Mul", .in = {x, channel_norm_column(b, node, 1)});
    x = OP_BUILD(b, "Add", .in = {x, channel_norm_column(b, node, 2)});
    results[0] = OP_BUILD(b, "Reshape", .in = {op_build_cast(b, x, dtype), shape});
}

const gqac_op gqac_op_instance_normalization = {
    .schema = {.name = "InstanceNormalization",
               .domain = "",
               .since = 6,
               .inputs = "input scale B",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "y = (x - mean) / sqrt(var + epsilon) * scale + B by channels"},
    .infer = infer,
    .expand = expand,
    .mixes = channel_norm_mixes,
};
