/* ScatterElements: output = data, then output[p with p[axis] = indices[p]] = updates[p] (or what
 * `reduction` makes of both), updates in row-major order; negative indices count from the end.
 * Source: ONNX operator spec. Every index is checked before its use. */
#include "ops/scatter.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type data = op_in_type(node, 0);
    int axis;
    GQAC_TRY(op_check_dtype(node, 0, op_scatter_types(node), diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_INDICES, diag));
    GQAC_TRY(op_check_same(node, 2, 0, diag));
    if (data.rank >= 0)
        GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), data.rank, &axis, diag));
    for (int i = 1; i <= 2; i++)
        if (data.rank >= 0 && op_in_type(node, i).rank >= 0 &&
            op_in_type(node, i).rank != data.rank)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "data, indices and updates must have the same rank");
    return op_set_type_like(node, 0, data, diag);
}

static gqac_status check(op_call *call, int axis) {
    const gqac_tensor *data = call->in[0], *indices = call->in[1], *updates = call->in[2];
    bool fits = data->rank == indices->rank && data->rank == updates->rank;
    for (int i = 0; fits && i < data->rank; i++)
        fits = indices->dims[i] == updates->dims[i] &&
               (i == axis || indices->dims[i] <= data->dims[i]);
    if (!fits)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "indices and updates must have the same shape, within that of data");
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    int64_t index;
    int axis;
    GQAC_TRY(op_scatter_start(call));
    GQAC_TRY(
        op_axis(call->node, ir_attr_int(call->node, "axis"), call->in[0]->rank, &axis, call->diag));
    GQAC_TRY(check(call, axis));
    op_elements_cursor p = op_elements_begin(call, axis);
    for (int64_t i = 0, n = gqac_tensor_count(call->in[1]); i < n; i++) {
        GQAC_TRY(op_index(call, i, axis, &index));
        op_scatter_put(call, p.base + index * p.strides[axis], call->in[2], i, 1);
        op_elements_next(&p);
    }
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", 0, "axis of the indices"),
    OP_ATTR_STRING("reduction", "none", "none, add, mul, max or min"),
    {.name = NULL},
};

const gqac_op gqac_op_scatter_elements = {
    .schema = {.name = "ScatterElements",
               .domain = "",
               .since = 18,
               .introduced = 11,
               .inputs = "data indices updates",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "data with output[p with p[axis] = indices[p]] = updates[p]"},
    .infer = infer,
    .verify = op_scatter_verify,
    .eval = eval,
    .mixes = op_elements_mixes,
};
