/* Transpose: axis i of the result is axis perm[i] of the input (all reversed without perm).
 * Source: ONNX operator spec. */
#include "ops/copy.h"

static gqac_status permutation(const ir_node *node, int rank, int *perm, gqac_diag *diag) {
    const ir_attr *attr = ir_attr_get(node, "perm");
    unsigned seen = 0;
    for (int i = 0; i < rank; i++) {
        int64_t axis = rank - 1 - i;
        if (attr->set)
            axis = attr->count == (size_t)rank ? attr->ints[i] : -1;
        if (axis < 0 || axis >= rank || (seen >> axis & 1))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "perm is not a permutation of %d axes", rank);
        seen |= 1u << axis;
        perm[i] = (int)axis;
    }
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    int perm[GQAC_MAX_RANK];
    if (type.rank < 0)
        return op_set_type(node, 0, type.dtype, -1, NULL, diag);
    GQAC_TRY(permutation(node, type.rank, perm, diag));
    for (int i = 0; i < type.rank; i++)
        dims[i] = type.dims[perm[i]];
    return op_set_type(node, 0, type.dtype, type.rank, dims, diag);
}

static gqac_status eval(op_call *call) {
    int perm[GQAC_MAX_RANK];
    int64_t strides[GQAC_MAX_RANK];
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(permutation(call->node, x->rank, perm, call->diag));
    op_box box = {.rank = x->rank, .in = x, .out = &call->out[0]};
    op_strides(x->rank, x->dims, strides);
    for (int i = 0; i < x->rank; i++) {
        box.dims[i] = x->dims[perm[i]];
        box.stride_in[i] = strides[perm[i]];
    }
    op_strides(x->rank, box.dims, box.stride_out);
    GQAC_TRY(op_copy_output(call, 0, x->dtype, x->rank, box.dims));
    return op_move(call, &box);
}

static const ir_attr_spec attrs[] = {
    {.name = "perm", .kind = IR_ATTR_INTS, .doc = "axes of the input; reversed when absent"},
    {.name = NULL},
};

const gqac_op gqac_op_transpose = {
    .schema = {.name = "Transpose",
               .domain = "",
               .since = 13,
               .inputs = "data",
               .outputs = "transposed",
               .attrs = attrs,
               .flags = IR_OP_MOVES,
               .rows = IR_ROWS_SHAPE,
               .doc = "permutes the axes"},
    .infer = infer,
    .eval = eval,
};
