/* GroupNormalization: channels in groups, each normalised over its channels and all places:
 *
 *   Y[n,c,...] = (X - mean) / sqrt(var + epsilon) * scale[c] + bias[c]
 *
 * with mean and population variance of the group. Becomes ReduceMean and elementwise ops, in fp32
 * unless stash_type says otherwise. Before opset 21 scale and bias were by group: not supported.
 * Source: ONNX operator spec, 21. */
#include "ops/shared.h"

static const ir_attr_spec attrs[] = {
    {.name = "num_groups", .kind = IR_ATTR_INT, .required = true, .doc = "groups of channels"},
    {"epsilon", IR_ATTR_FLOAT, .fallback = {.set = true, .f = 1e-5f},
     .doc = "added to the variance"},
    {"stash_type", IR_ATTR_INT, .fallback = {.set = true, .i = 1}, .doc = "1: computed in fp32"},
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
        OP_FAIL(node, b->diag, GQAC_UNSUPPORTED, "opset %d has scale and bias by group", opset);
    return GQAC_OK;
}

/* Scale and bias have an element for each channel, where that is known. */
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

/* Places and the channels of a group meet; batch rows do not. */
static bool mixes(const ir_node *node) {
    const ir_value *x = ir_node_input(node, 0);
    if (x->type.rank < 0)
        return true;
    for (int axis = 1; axis < x->type.rank; axis++)
        if (op_axis_is_row(x, axis))
            return true;
    return false;
}

static ir_value *build2(ir_builder *b, const char *op, ir_value *x, ir_value *y) {
    return op_build1(b, "", op, 2, (ir_value *[]){x, y});
}

static ir_value *build_mean(ir_builder *b, ir_value *x) {
    const int64_t axis = 2;
    return build2(b, "ReduceMean", x, ir_build_i64s(b, 1, &axis));
}

/* x [N,C,...] as [N,n,all else]. */
static ir_value *build_parts(ir_builder *b, ir_value *x, int64_t n) {
    return build2(b, "Reshape", x, ir_build_i64s(b, 3, (const int64_t[]){0, n, -1}));
}

static ir_value *concat(ir_builder *b, int n, ir_value **parts) {
    ir_node *node = op_build(b, "", "Concat", n, parts, 1);
    if (node)
        ir_attr_set_int(node, "axis", 0);
    return ir_build_result(b, node, 0);
}

/* Scale and bias go through [groups,-1] and [C,1]: that fails where lengths which the model does
 * not tell do not fit, or channels are no whole groups. */
static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    const gqac_dtype dtype = op_in_type(node, 0).dtype;
    ir_value *x = ir_node_input(node, 0), *by[2];
    ir_value *shape = op_build1(b, "", "Shape", 1, &x), *channels = op_build_lengths(b, x, 1, 1);
    const int64_t groups = ir_attr_int(node, "num_groups"), zero = 0, one = 1, rest = -1;
    ir_value *column[] = {channels, ir_build_i64s(b, 1, &one)};
    for (int i = 0; i < 2; i++)
        by[i] = build2(b, "Reshape",
                       build2(b, "Reshape", op_build_cast(b, ir_node_input(node, 1 + i), GQAC_F32),
                              ir_build_i64s(b, 2, (const int64_t[]){groups, -1})),
                       concat(b, 2, column));
    x = build_parts(b, op_build_cast(b, x, GQAC_F32), groups);
    x = build2(b, "Sub", x, build_mean(b, x));
    ir_value *var = build2(b, "Add", build_mean(b, build2(b, "Mul", x, x)),
                           ir_build_f32(b, ir_attr_float(node, "epsilon")));
    x = build2(b, "Div", x, op_build1(b, "", "Sqrt", 1, &var));
    ir_value *parts[] = {ir_build_i64s(b, 1, &zero), channels, ir_build_i64s(b, 1, &rest)};
    x = build2(b, "Reshape", x, concat(b, 3, parts));
    x = build2(b, "Add", build2(b, "Mul", x, by[0]), by[1]);
    results[0] = build2(b, "Reshape", op_build_cast(b, x, dtype), shape);
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
