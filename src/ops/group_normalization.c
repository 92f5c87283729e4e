/* GroupNormalization: channels in groups, each group normalised over its channels and all
 * positions:
 *
 *   Y[n,c,...] = (X - mean) / sqrt(var + epsilon) * scale[c] + bias[c]
 *
 * with mean and population variance of the group. Becomes ReduceMean and elementwise ops, in fp32
 * unless stash_type says otherwise. Before opset 21 scale and bias had an element for each group,
 * which is not supported. Source: ONNX operator spec, 21. */
#include "ops/channel_norm.h"
#include "ops/shared.h"

static const ir_attr_spec attrs[] = {
    {.name = "num_groups", .kind = IR_ATTR_INT, .required = true, .doc = "groups of channels"},
    OP_ATTR_FLOAT("epsilon", 1e-5f, "added to the variance"),
    OP_ATTR_INT("stash_type", 1, "1: computed in fp32"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const int64_t groups = ir_attr_int(node, "num_groups"), stash = ir_attr_int(node, "stash_type");
    if (groups < 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute num_groups = %lld: must be at least 1",
                (long long)groups);
    if (stash != 1)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute stash_type = %lld: only 1 is supported",
                (long long)stash);
    return GQAC_OK;
}

static gqac_status upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    (void)raw;
    if (opset < 21)
        OP_FAIL(node, b->diag, GQAC_UNSUPPORTED,
                "opset %d has a scale and bias for each group: only those for each channel (opset "
                "21) are supported",
                opset);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_type type = op_in_type(node, 0);
    const int64_t groups = ir_attr_int(node, "num_groups");
    int64_t channels;
    GQAC_TRY(verify(node, diag));
    if (type.rank > 1 && ir_dim_is_const(type.dims[1], &channels) && channels % groups)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld channels cannot be divided into %lld groups",
                (long long)channels, (long long)groups);
    return channel_norm_infer(node, 2, diag);
}

/* Reshaping to [groups,-1] fails at run time if groups do not divide the channels. */
static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    const gqac_dtype dtype = op_in_type(node, 0).dtype;
    ir_value *x = ir_node_input(node, 0), *shape = OP_BUILD(b, "Shape", .in = {x});
    ir_value *channels = op_build_lengths(b, x, 1, 1), *by[2];
    const int64_t groups = ir_attr_int(node, "num_groups");
    for (int i = 0; i < 2; i++) { /* scale and bias */
        ir_value *column = channel_norm_column(b, node, 1 + i);
        ir_value *column_shape = OP_BUILD(b, "Shape", .in = {column});
        by[i] = OP_BUILD(b, "Reshape", .in = {column, OP_I64S(b, groups, -1)});
        by[i] = OP_BUILD(b, "Reshape", .in = {by[i], column_shape});
    }
    x = channel_norm_rows(b, node, OP_RESHAPE(b, op_build_cast(b, x, GQAC_F32), 0, groups, -1));
    ir_value *flat = OP_BUILD(b, "Concat", .in = {OP_I64S(b, 0), channels, OP_I64S(b, -1)},
                              .ints = {{"axis", 0}});
    x = OP_BUILD(b, "Reshape", .in = {x, flat});
    x = OP_BUILD(b, "Mul", .in = {x, by[0]});
    x = OP_BUILD(b, "Add", .in = {x, by[1]});
    results[0] = OP_BUILD(b, "Reshape", .in = {op_build_cast(b, x, dtype), shape});
}

const gqac_op gqac_op_group_normalization = {
    .schema = {.name = "GroupNormalization",
               .domain = "",
               .since = 21,
               .introduced = 18,
               .inputs = "X scale bias",
               .outputs = "Y",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "Y = (X - mean) / sqrt(var + epsilon) * scale + bias by groups of channels"},
    .verify = verify,
    .infer = infer,
    .expand = expand,
    .upgrade = upgrade,
    .mixes = channel_norm_mixes,
};
