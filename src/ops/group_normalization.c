/* GroupNormalization: channels in groups, each group normalised over its channels and all
 * positions:
 *
 *   Y[n,c,...] = (X - mean) / sqrt(var + epsilon) * scale[c] + bias[c]
 *
 * with mean and population variance of the group. Becomes ReduceMean and elementwise ops, in fp32
 * unless stash_type says otherwise. Before opset 21 scale and bias had an element for each group,
 * which is not supported. Source: ONNX operator spec, 21. */
#include "ops/build.h"
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
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "num_groups is %lld", (long long)groups);
    if (stash != 1)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "stash_type %lld, not 1", (long long)stash);
    return GQAC_OK;
}

static gqac_status upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    (void)raw;
    if (opset < 21)
        OP_FAIL(node, b->diag, GQAC_UNSUPPORTED, "opset %d has a scale and bias for each group",
                opset);
    return GQAC_OK;
}

/* Checks that scale and bias have an element for each channel, where lengths are known. */
static gqac_status check_channels(const ir_node *node, int input, const ir_type *x,
                                  gqac_diag *diag) {
    static const char *const names[] = {"X", "scale", "bias"};
    const ir_type type = op_in_type(node, input);
    int64_t n, channels;
    if (type.rank >= 0 && type.rank != 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%s has rank %d, not 1", names[input], type.rank);
    if (x->rank > 1 && type.rank == 1 && ir_dim_is_const(x->dims[1], &channels) &&
        ir_dim_is_const(type.dims[0], &n) && n != channels)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%s has %lld elements for %lld channels",
                names[input], (long long)n, (long long)channels);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_type type = op_in_type(node, 0);
    const int64_t groups = ir_attr_int(node, "num_groups");
    int64_t channels;
    GQAC_TRY(verify(node, diag));
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    GQAC_TRY(op_check_same(node, 0, 2, diag));
    if (type.rank == 0 || type.rank == 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "X has rank %d, less than 2", type.rank);
    if (type.rank > 0 && ir_dim_is_const(type.dims[1], &channels) && channels % groups)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld channels in %lld groups", (long long)channels,
                (long long)groups);
    GQAC_TRY(check_channels(node, 1, &type, diag));
    GQAC_TRY(check_channels(node, 2, &type, diag));
    return op_set_type_like(node, 0, type, diag);
}

/* Positions and the channels of a group are mixed; batch rows are not. */
static bool mixes(const ir_node *node) {
    const ir_value *x = ir_node_input(node, 0);
    if (x->type.rank < 0)
        return true;
    for (int axis = 1; axis < x->type.rank; axis++)
        if (op_axis_is_row(x, axis))
            return true;
    return false;
}

static ir_value *build_mean(ir_builder *b, ir_value *x) {
    return OP_BUILD(b, "ReduceMean", .in = {x, OP_I64S(b, 2)});
}

/* Scale and bias are reshaped to [groups,-1] and [C,1], which fails at run time where lengths that
 * the model leaves open do not fit, or groups do not divide the channels. */
static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    const gqac_dtype dtype = op_in_type(node, 0).dtype;
    ir_value *x = ir_node_input(node, 0), *by[2];
    ir_value *shape = OP_BUILD(b, "Shape", .in = {x}), *channels = op_build_lengths(b, x, 1, 1);
    const int64_t groups = ir_attr_int(node, "num_groups");
    ir_value *one = OP_I64S(b, 1);
    for (int i = 0; i < 2; i++) { /* scale and bias */
        ir_value *column = OP_BUILD(b, "Concat", .in = {channels, one}, .ints = {{"axis", 0}});
        ir_value *rows = OP_I64S(b, groups, -1);
        by[i] = op_build_cast(b, ir_node_input(node, 1 + i), GQAC_F32);
        by[i] = OP_BUILD(b, "Reshape", .in = {by[i], rows});
        by[i] = OP_BUILD(b, "Reshape", .in = {by[i], column});
    }
    x = OP_RESHAPE(b, op_build_cast(b, x, GQAC_F32), 0, groups, -1);
    x = OP_BUILD(b, "Sub", .in = {x, build_mean(b, x)});
    ir_value *epsilon = ir_build_f32(b, ir_attr_float(node, "epsilon"));
    ir_value *var = build_mean(b, OP_BUILD(b, "Mul", .in = {x, x}));
    var = OP_BUILD(b, "Add", .in = {var, epsilon});
    x = OP_BUILD(b, "Div", .in = {x, OP_BUILD(b, "Sqrt", .in = {var})});
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
    .mixes = mixes,
};
