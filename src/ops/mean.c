/* Mean: elementwise mean of all inputs. Becomes Sum, then Div by their number. Source: ONNX
 * operator spec. */
#include "ops/build.h"
#include "ops/shared.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type all = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    for (int i = 0; i < node->n_inputs; i++) {
        ir_type next = op_in_type(node, i), so_far = all;
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS | OP_BIT(F64), diag));
        GQAC_TRY(op_check_same(node, 0, i, diag));
        if (all.rank < 0 || next.rank < 0) {
            all.rank = -1;
            continue;
        }
        const ir_dim *joined[GQAC_MAX_RANK];
        GQAC_TRY(op_broadcast_types(node, &so_far, &next, &all.rank, joined, diag));
        for (int k = 0; k < all.rank; k++)
            dims[k] = joined[k];
        all.dims = dims;
    }
    return op_set_type(node, 0, all.dtype, all.rank, all.rank < 0 ? NULL : all.dims, diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    ir_value *in[64], *sum = ir_node_input(node, 0);
    (void)options;
    for (int at = 1; at < node->n_inputs;) { /* in pieces, from the left */
        int n = 1;
        for (in[0] = sum; n < 64 && at < node->n_inputs; n++)
            in[n] = ir_node_input(node, at++);
        sum = OP_BUILD(b, "Sum", .list = {n, in});
    }
    ir_value *count = ir_build_f32(b, (float)node->n_inputs);
    results[0] = OP_BUILD(b, "Div", .in = {sum, OP_BUILD(b, "CastLike", .in = {count, sum})});
}

const gqac_op gqac_op_mean = {
    .schema = {.name = "Mean",
               .domain = "",
               .since = 8,
               .inputs = "data+",
               .outputs = "mean",
               .rows = IR_ROWS_LOCAL,
               .doc = "mean of all inputs, broadcast"},
    .infer = infer,
    .expand = expand,
};
