/* Tile: the input repeated repeats[i] times along axis i. Source: ONNX operator spec. */
#include "ops/copy.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *repeats[GQAC_MAX_RANK] = {NULL}, *dims[GQAC_MAX_RANK];
    int64_t n = op_elements(node, 1, GQAC_MAX_RANK, repeats);
    GQAC_TRY(op_check_dtype(node, 0, OP_ANY, diag));
    GQAC_TRY(op_check_list(node, 1, GQAC_MAX_RANK, diag));
    if (type.rank >= 0 && n >= 0 && n != type.rank)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld repeats for an input of rank %d",
                (long long)n, type.rank);
    for (int i = 0; i < type.rank; i++)
        dims[i] = ir_dim_mul(op_dims(node), type.dims[i], n < 0 ? NULL : repeats[i]);
    return op_set_type(node, 0, type.dtype, type.rank, dims, diag);
}

static gqac_status eval(op_call *call) {
    int64_t repeats[GQAC_MAX_RANK], dims[GQAC_MAX_RANK], n, in_strides[GQAC_MAX_RANK],
        out_strides[GQAC_MAX_RANK];
    GQAC_TRY(op_want_set(call, 0, OP_ANY));
    GQAC_TRY(op_ints(call, 1, GQAC_MAX_RANK, repeats, &n));
    const gqac_tensor *in = call->in[0];
    bool fits = n == in->rank;
    for (int i = 0; fits && i < in->rank; i++)
        fits = repeats[i] >= 0 && !__builtin_mul_overflow(in->dims[i], repeats[i], &dims[i]);
    if (!fits)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "repeats do not fit the input");
    GQAC_TRY(op_copy_output(call, 0, in->dtype, in->rank, dims));
    op_box box = {.rank = 2 * in->rank, .in = in, .out = &call->out[0]};
    op_strides(in->rank, in->dims, in_strides);
    op_strides(in->rank, dims, out_strides);
    for (int i = 0; i < in->rank; i++) {
        const size_t at = 2 * (size_t)i;
        box.dims[at] = repeats[i];
        box.stride_out[at] = out_strides[i] * in->dims[i];
        box.dims[at + 1] = in->dims[i];
        box.stride_in[at + 1] = in_strides[i];
        box.stride_out[at + 1] = out_strides[i];
    }
    return op_move(call, &box);
}

const gqac_op gqac_op_tile = {
    .schema = {.name = "Tile",
               .domain = "",
               .since = 13,
               .inputs = "input repeats",
               .outputs = "output",
               .flags = IR_OP_MOVES,
               .rows = IR_ROWS_SHAPE,
               .doc = "the input repeated along its axes"},
    .infer = infer,
    .eval = eval,
};
