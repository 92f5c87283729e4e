/* x [B,H,S,D] -> y [B,S,H*D]. */
#include "ops/attention.h"
#include "ops/copy.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, 0, 4, diag));
    const ir_dim *dims[3] = {
        op_in_dim(node, 0, 0), op_in_dim(node, 0, 2),
        ir_dim_mul(op_dims(node), op_in_dim(node, 0, 1), op_in_dim(node, 0, 3))};
    return op_set_type(node, 0, op_in_type(node, 0).dtype, 3, dims, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, 0, OP_ANY & ~OP_NIBBLES));
    const gqac_tensor *x = call->in[0];
    if (x->rank != 4)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "the input has rank %d, expected 4",
                x->rank);
    int64_t batch = x->dims[0], heads = x->dims[1], rows = x->dims[2], size = x->dims[3];
    int64_t dims[3] = {batch, rows, heads * size};
    GQAC_TRY(op_output(call, 0, x->dtype, 3, dims));
    op_box box = {.rank = 4,
                  .dims = {batch, rows, heads, size},
                  .in = x,
                  .out = &call->out[0],
                  .stride_in = {heads * rows * size, size, rows * size, 1},
                  .stride_out = {rows * heads * size, heads * size, size, 1}};
    return op_move(call, &box);
}

const gqac_op gqac_op_merge_heads = {
    .schema = {.name = "merge_heads",
               .domain = "gqac",
               .since = 1,
               .inputs = "x",
               .outputs = "y",
               .flags = IR_OP_MOVES,
               .rows = IR_ROWS_LOCAL,
               .doc = "x [B,H,S,D] to y [B,S,H*D]"},
    .infer = infer,
    .eval = eval,
};
