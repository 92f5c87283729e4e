/* y [m+n,C] = the rows of a [m,C], then those of b [n,C]. Either may have no rows. A cache of plain
 * rows grows this way, by a copy of all its rows. */
#include "ops/attention.h"

#include <string.h>

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, 0, 2, diag));
    GQAC_TRY(attention_want_rank(node, 1, 2, diag));
    GQAC_TRY(op_check_dtype(node, 0, OP_ANY & ~OP_NIBBLES, diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, 1, 1), op_in_dim(node, 0, 1), "columns of b",
                                diag));
    const ir_dim *dims[2] = {
        ir_dim_add(op_dims(node), op_in_dim(node, 0, 0), op_in_dim(node, 1, 0)),
        op_in_dim(node, 0, 1)};
    return op_set_type(node, 0, op_in_type(node, 0).dtype, 2, dims, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, 0, OP_ANY & ~OP_NIBBLES));
    const gqac_tensor *a = call->in[0], *b = call->in[1];
    GQAC_TRY(op_want(call, 1, a->dtype));
    if (a->rank != 2 || b->rank != 2 || a->dims[1] != b->dims[1])
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "a of rank %d and b of rank %d, the last dimensions %lld and %lld: two matrices "
                "with as many columns are needed",
                a->rank, b->rank, (long long)(a->rank > 0 ? a->dims[a->rank - 1] : 0),
                (long long)(b->rank > 0 ? b->dims[b->rank - 1] : 0));
    int64_t dims[2] = {0, a->dims[1]};
    if (__builtin_add_overflow(a->dims[0], b->dims[0], &dims[0]))
        OP_FAIL(call->node, call->diag, GQAC_LIMIT, "the result has too many rows");
    GQAC_TRY(op_output(call, 0, a->dtype, 2, dims));
    unsigned char *y = call->out[0].data;
    size_t first = gqac_tensor_bytes(a), second = gqac_tensor_bytes(b);
    if (first > 0)
        memcpy(y, a->data, first);
    if (second > 0)
        memcpy(y + first, b->data, second);
    return GQAC_OK;
}

static bool mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, 0), 0) || op_axis_is_row(ir_node_input(node, 1), 0);
}

const gqac_op gqac_op_concat_dim0 = {
    .schema = {.name = "concat_dim0",
               .domain = "gqac",
               .since = 1,
               .inputs = "a b",
               .outputs = "y",
               .rows = IR_ROWS_SHAPE,
               .doc = "y [m+n,C] = rows of a [m,C], then of b [n,C]"},
    .infer = infer,
    .eval = eval,
    .mixes = mixes,
};
