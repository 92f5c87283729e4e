/* OneHot: along a new axis of length depth, values[1] at the position of an index and values[0]
 * elsewhere; negative indices count from the end, an index that is out of range has no position.
 * Source: ONNX operator spec. */
#include "ops/shared.h"

#include <string.h>

enum { INDICES, DEPTH, VALUES };

/* The new axis, of rank + 1. */
static gqac_status axis_of(const ir_node *node, int rank, int *axis, gqac_diag *diag) {
    return op_axis(node, ir_attr_int(node, "axis"), rank + 1, axis, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type indices = op_in_type(node, INDICES);
    const ir_dim *dims[GQAC_MAX_RANK + 1], *depth = NULL;
    int axis;
    GQAC_TRY(op_check_dtype(node, INDICES, OP_NUMBERS, diag));
    GQAC_TRY(op_check_dtype(node, DEPTH, OP_NUMBERS, diag));
    GQAC_TRY(op_check_dtype(node, VALUES, OP_NUMBERS | OP_BIT(BOOL), diag));
    gqac_dtype dtype = op_in_type(node, VALUES).dtype;
    if (indices.rank < 0)
        return op_set_type(node, 0, dtype, -1, NULL, diag);
    if (indices.rank >= GQAC_MAX_RANK)
        OP_FAIL(node, diag, GQAC_LIMIT, "indices have rank %d, the maximum is %d", indices.rank,
                GQAC_MAX_RANK - 1);
    GQAC_TRY(axis_of(node, indices.rank, &axis, diag));
    if (!OP_IN(OP_INDICES, op_in_type(node, DEPTH).dtype) ||
        op_elements(node, DEPTH, 1, &depth) != 1)
        depth = NULL;
    for (int i = 0; i <= indices.rank; i++)
        dims[i] = i == axis ? depth : indices.dims[i > axis ? i - 1 : i];
    return op_set_type(node, 0, dtype, indices.rank + 1, dims, diag);
}

static int64_t whole(const gqac_tensor *tensor, int64_t i) {
    return OP_IN(OP_INTS, tensor->dtype) ? op_get_i64(tensor, i)
                                         : op_f64_to_i64(op_get_f64(tensor, i));
}

static gqac_status check(op_call *call, int *axis) {
    GQAC_TRY(op_want_set(call, INDICES, OP_NUMBERS));
    GQAC_TRY(op_want_set(call, DEPTH, OP_NUMBERS));
    GQAC_TRY(op_want_set(call, VALUES, OP_NUMBERS | OP_BIT(BOOL)));
    const gqac_tensor *indices = call->in[INDICES];
    if (gqac_tensor_count(call->in[DEPTH]) != 1 || call->in[VALUES]->rank != 1 ||
        call->in[VALUES]->dims[0] != 2 || indices->rank >= GQAC_MAX_RANK)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "depth must have one element, values two, and indices a rank below %d",
                GQAC_MAX_RANK);
    if (whole(call->in[DEPTH], 0) < 0)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE, "depth = %lld is negative",
                (long long)whole(call->in[DEPTH], 0));
    return axis_of(call->node, indices->rank, axis, call->diag);
}

static gqac_status eval(op_call *call) {
    int64_t dims[GQAC_MAX_RANK + 1];
    int axis;
    GQAC_TRY(check(call, &axis));
    const gqac_tensor *indices = call->in[INDICES], *values = call->in[VALUES];
    int64_t depth = whole(call->in[DEPTH], 0);
    for (int i = 0; i <= indices->rank; i++)
        dims[i] = i == axis ? depth : indices->dims[i > axis ? i - 1 : i];
    GQAC_TRY(op_output(call, 0, values->dtype, indices->rank + 1, dims));
    size_t width = op_width(values->dtype);
    int64_t inner = op_product(indices->dims, axis, indices->rank);
    char *y = call->out[0].data;
    for (int64_t i = 0, n = gqac_tensor_count(&call->out[0]); i < n; i++)
        memcpy(y + (size_t)i * width, values->data, width);
    for (int64_t i = 0, n = depth > 0 ? gqac_tensor_count(indices) : 0; i < n; i++) {
        int64_t index = whole(indices, i);
        index += index < 0 ? depth : 0;
        if (index < 0 || index >= depth)
            continue;
        int64_t at = (i / inner * depth + index) * inner + i % inner;
        memcpy(y + (size_t)at * width, (const char *)values->data + width, width);
    }
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", -1, "index of the new axis"),
    {.name = NULL},
};

const gqac_op gqac_op_one_hot = {
    .schema = {.name = "OneHot",
               .domain = "",
               .since = 11,
               .introduced = 9,
               .inputs = "indices depth values",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "values[1] at an index along a new axis, values[0] elsewhere"},
    .infer = infer,
    .eval = eval,
};
