/* GroupNormalization and InstanceNormalization: X [N,C,...] with a scale and a bias for each
 * channel. Positions are mixed, and channels of a group; batch rows are not. */
#include "ops/channel_norm.h"

#include "ops/shared.h"

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

gqac_status channel_norm_infer(ir_node *node, int least_rank, gqac_diag *diag) {
    const ir_type type = op_in_type(node, 0);
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    GQAC_TRY(op_check_same(node, 0, 2, diag));
    if (type.rank >= 0 && type.rank < least_rank)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "X has rank %d, less than %d", type.rank,
                least_rank);
    GQAC_TRY(check_channels(node, 1, &type, diag));
    GQAC_TRY(check_channels(node, 2, &type, diag));
    return op_set_type_like(node, 0, type, diag);
}

bool channel_norm_mixes(const ir_node *node) {
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

ir_value *channel_norm_rows(ir_builder *b, const ir_node *node, ir_value *x) {
    x = OP_BUILD(b, "Sub", .in = {x, build_mean(b, x)});
    ir_value *epsilon = ir_build_f32(b, ir_attr_float(node, "epsilon"));
    ir_value *var = build_mean(b, OP_BUILD(b, "Mul", .in = {x, x}));
    var = OP_BUILD(b, "Add", .in = {var, epsilon});
    return OP_BUILD(b, "Div", .in = {x, OP_BUILD(b, "Sqrt", .in = {var})});
}

ir_value *channel_norm_column(ir_builder *b, const ir_node *node, int input) {
    ir_value *channels = op_build_lengths(b, ir_node_input(node, 0), 1, 1);
    ir_value *shape = OP_BUILD(b, "Concat", .in = {channels, OP_I64S(b, 1)}, .ints = {{"axis", 0}});
    ir_value *column = op_build_cast(b, ir_node_input(node, input), GQAC_F32);
    return OP_BUILD(b, "Reshape", .in = {column, shape});
}
