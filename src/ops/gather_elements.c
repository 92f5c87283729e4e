/* GatherElements: output[p] = data[p with p[axis] = indices[p]], of the shape of indices; negative
 * indices count from the end. Source: ONNX operator spec. Every index is checked before its use. */
#include "ops/scatter.h"

#include <string.h>

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type data = op_in_type(node, 0), indices = op_in_type(node, 1);
    int axis;
    GQAC_TRY(op_check_dtype(node, 0, OP_NUMBERS | OP_BIT(BOOL), diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_INDICES, diag));
    if (data.rank >= 0)
        GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), data.rank, &axis, diag));
    if (data.rank >= 0 && indices.rank >= 0 && data.rank != indices.rank)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "data has rank %d, indices have rank %d", data.rank,
                indices.rank);
    return op_set_type(node, 0, data.dtype, indices.rank, indices.dims, diag);
}

static gqac_status copy(op_call *call, int axis) {
    const gqac_tensor *data = call->in[0], *indices = call->in[1];
    op_elements_cursor p = op_elements_begin(call, axis);
    int64_t index;
    size_t width = op_width(data->dtype);
    unsigned char *to = call->out[0].data;
    const unsigned char *from = data->data;
    for (int64_t i = 0, n = gqac_tensor_count(indices); i < n; i++) {
        GQAC_TRY(op_index(call, i, axis, &index));
        const int64_t source = p.base + index * p.strides[axis];
        memcpy(to + (size_t)i * width, from + (size_t)source * width, width);
        op_elements_next(&p);
    }
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    const ir_node *node = call->node;
    int axis;
    GQAC_TRY(op_want_set(call, 0, OP_NUMBERS | OP_BIT(BOOL)));
    GQAC_TRY(op_want_set(call, 1, OP_INDICES));
    const gqac_tensor *data = call->in[0], *indices = call->in[1];
    GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), data->rank, &axis, call->diag));
    bool fits = data->rank == indices->rank;
    for (int i = 0; fits && i < data->rank; i++)
        fits = i == axis || indices->dims[i] <= data->dims[i];
    if (!fits)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "the shape of indices exceeds that of data");
    GQAC_TRY(op_output_like(call, 0, data->dtype, indices));
    return copy(call, axis);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", 0, "axis of the indices"),
    {.name = NULL},
};

const gqac_op gqac_op_gather_elements = {
    .schema = {.name = "GatherElements",
               .domain = "",
               .since = 13,
               .introduced = 11,
               .inputs = "data indices",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "output[p] = data[p with p[axis] = indices[p]]"},
    .infer = infer,
    .eval = eval,
    .mixes = op_elements_mixes,
};
