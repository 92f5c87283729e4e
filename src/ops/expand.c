/* Expand: data broadcast with a shape, both ways. Source: ONNX operator spec. */
#include "ops/copy.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type data = op_in_type(node, 0);
    const ir_dim *wanted[GQAC_MAX_RANK], *dims[GQAC_MAX_RANK];
    int64_t value, n = op_elements(node, 1, GQAC_MAX_RANK, wanted);
    int rank = -1;
    GQAC_TRY(op_check_dtype(node, 0, OP_ANY, diag));
    GQAC_TRY(op_check_list(node, 1, GQAC_MAX_RANK, diag));
    if (n < 0 && ir_dim_is_const(op_in_dim(node, 1, 0), &value) && value <= GQAC_MAX_RANK) {
        n = value;
        for (int64_t i = 0; i < n; i++)
            wanted[i] = NULL;
    }
    if (data.rank < 0 || n < 0)
        return op_set_type(node, 0, data.dtype, -1, NULL, diag);
    for (int64_t i = 0; i < n; i++)
        if (ir_dim_is_const(wanted[i], &value) && value < 0)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "dimension %lld of the shape is negative",
                    (long long)value);
    ir_type shape = {.rank = (int)n, .dims = wanted};
    GQAC_TRY(op_broadcast_types(node, &data, &shape, &rank, dims, diag));
    return op_set_type(node, 0, data.dtype, rank, dims, diag);
}

static gqac_status eval(op_call *call) {
    gqac_tensor shape = {.dtype = GQAC_NONE};
    int64_t rank, strides[GQAC_MAX_RANK];
    GQAC_TRY(op_want_set(call, 0, OP_ANY));
    GQAC_TRY(op_ints(call, 1, GQAC_MAX_RANK, shape.dims, &rank));
    const gqac_tensor *in = call->in[0];
    shape.rank = (int)rank;
    for (int i = 0; i < shape.rank; i++)
        if (shape.dims[i] < 0)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "dimension %lld of the shape is negative", (long long)shape.dims[i]);
    GQAC_TRY(op_broadcast(call, &shape, in, &shape.rank, shape.dims));
    GQAC_TRY(op_copy_output(call, 0, in->dtype, shape.rank, shape.dims));
    op_box box = {.rank = shape.rank, .in = in, .out = &call->out[0]};
    op_strides(in->rank, in->dims, strides);
    op_strides(shape.rank, shape.dims, box.stride_out);
    for (int i = 0; i < shape.rank; i++) {
        int k = i - (shape.rank - in->rank);
        box.dims[i] = shape.dims[i];
        box.stride_in[i] = k >= 0 && in->dims[k] != 1 ? strides[k] : 0;
    }
    return op_move(call, &box);
}

const gqac_op gqac_op_expand = {
    .schema = {.name = "Expand",
               .domain = "",
               .since = 13,
               .introduced = 8,
               .inputs = "input shape",
               .outputs = "output",
               .flags = IR_OP_MOVES,
               .rows = IR_ROWS_SHAPE,
               .doc = "the input broadcast with a shape"},
    .infer = infer,
    .eval = eval,
};
