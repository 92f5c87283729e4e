/* Flatten: a matrix [product of the axes before `axis`, product of the others].
 * Source: ONNX operator spec. */
#include "ops/copy.h"

/* Unlike other axes this one may equal the rank. */
static gqac_status split_at(const ir_node *node, int rank, int *axis, gqac_diag *diag) {
    int64_t at = ir_attr_int(node, "axis");
    if (at == rank)
        *axis = rank;
    else
        GQAC_TRY(op_axis(node, at, rank, axis, diag));
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    ir_dims *d = op_dims(node);
    int axis;
    if (type.rank < 0)
        return op_set_type(node, 0, type.dtype, 2, NULL, diag);
    GQAC_TRY(split_at(node, type.rank, &axis, diag));
    const ir_dim *dims[2] = {ir_dim_const(d, 1), ir_dim_const(d, 1)};
    for (int i = 0; i < type.rank; i++)
        dims[i >= axis] = ir_dim_mul(d, dims[i >= axis], type.dims[i]);
    return op_set_type(node, 0, type.dtype, 2, dims, diag);
}

static gqac_status eval(op_call *call) {
    int axis;
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(split_at(call->node, x->rank, &axis, call->diag));
    int64_t dims[2] = {op_product(x->dims, 0, axis), op_product(x->dims, axis, x->rank)};
    return op_copy_as(call, 2, dims);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", 1, "first axis of the second dimension"),
    {.name = NULL},
};

const gqac_op gqac_op_flatten = {
    .schema = {.name = "Flatten",
               .domain = "",
               .since = 13,
               .inputs = "input",
               .outputs = "output",
               .attrs = attrs,
               .flags = IR_OP_IN_PLACE | IR_OP_MOVES,
               .rows = IR_ROWS_SHAPE,
               .doc = "a matrix of the axes before and from `axis`"},
    .infer = infer,
    .eval = eval,
};
