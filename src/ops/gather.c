/* Gather: output[o.., i.., k..] = data[o.., indices[i..], k..]; negative indices count from the
 * end. Source: ONNX operator spec. Every index is checked before anything is copied.
 *
 * Rows are selected, not mixed: an output row is an input row however tokens are split. */
#include "ops/copy.h"

#include <string.h>

typedef struct gather_arg {
    const gqac_tensor *data, *indices;
    gqac_tensor *out;
    int64_t length, block, count; /* length of the axis, elements after it, number of indices */
} gather_arg;

static void run_blocks(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const gather_arg *g = arg;
    size_t width = op_width(g->data->dtype), bytes = (size_t)g->block * width;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t index = op_get_i64(g->indices, item % g->count);
        int64_t row = item / g->count * g->length + (index < 0 ? index + g->length : index);
        const unsigned char *from = g->data->data;
        unsigned char *to = g->out->data;
        if (width > 0)
            memcpy(to + (size_t)item * bytes, from + (size_t)row * bytes, bytes);
        else
            for (int64_t i = 0; i < g->block; i++)
                op_put_i64(g->out, item * g->block + i, op_get_i64(g->data, row * g->block + i));
    }
}

static gqac_status infer_elements(ir_node *node, gqac_diag *diag) {
    const ir_dim *data[OP_MAX_ELEMENTS], *at[OP_MAX_ELEMENTS];
    int64_t n = op_elements(node, 0, OP_MAX_ELEMENTS, data);
    int64_t count = op_elements(node, 1, OP_MAX_ELEMENTS, at);
    if (n < 0 || count < 0 || op_in_type(node, 0).rank != 1)
        return GQAC_OK;
    for (int64_t i = 0; i < count; i++) {
        int64_t index;
        if (!ir_dim_is_const(at[i], &index)) {
            at[i] = NULL;
            continue;
        }
        if (index < -n || index >= n)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "index %lld is out of range for %lld elements",
                    (long long)index, (long long)n);
        at[i] = data[index < 0 ? index + n : index];
    }
    return op_set_elements(node, 0, count, at, diag);
}

/* Constant indices, along an axis of constant length. */
static gqac_status check_indices(const ir_node *node, int axis, gqac_diag *diag) {
    const ir_dim *at[OP_MAX_ELEMENTS];
    const int64_t count = op_elements(node, 1, OP_MAX_ELEMENTS, at);
    int64_t length, index;
    if (!ir_dim_is_const(op_in_dim(node, 0, axis), &length))
        return GQAC_OK;
    for (int64_t i = 0; i < count; i++)
        if (ir_dim_is_const(at[i], &index) && (index < -length || index >= length))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "index %lld is out of range for axis %d of length %lld", (long long)index, axis,
                    (long long)length);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type data = op_in_type(node, 0), indices = op_in_type(node, 1);
    const ir_dim *dims[2 * GQAC_MAX_RANK];
    int axis, rank = 0;
    GQAC_TRY(op_check_dtype(node, 0, OP_ANY, diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_INDICES, diag));
    if (data.rank < 0)
        return op_set_type(node, 0, data.dtype, -1, NULL, diag);
    GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), data.rank, &axis, diag));
    GQAC_TRY(check_indices(node, axis, diag));
    if (indices.rank < 0)
        return op_set_type(node, 0, data.dtype, -1, NULL, diag);
    for (int i = 0; i < axis; i++)
        dims[rank++] = data.dims[i];
    for (int i = 0; i < indices.rank; i++)
        dims[rank++] = indices.dims[i];
    for (int i = axis + 1; i < data.rank; i++)
        dims[rank++] = data.dims[i];
    GQAC_TRY(op_set_type(node, 0, data.dtype, rank, dims, diag));
    return infer_elements(node, diag);
}

static gqac_status eval(op_call *call) {
    const ir_node *node = call->node;
    int axis, rank = 0;
    int64_t dims[2 * GQAC_MAX_RANK], index;
    GQAC_TRY(op_want_set(call, 0, OP_ANY));
    GQAC_TRY(op_want_set(call, 1, OP_INDICES));
    const gqac_tensor *data = call->in[0], *indices = call->in[1];
    GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), data->rank, &axis, call->diag));
    for (int i = 0; i < axis; i++)
        dims[rank++] = data->dims[i];
    for (int i = 0; i < indices->rank; i++)
        dims[rank++] = indices->dims[i];
    for (int i = axis + 1; i < data->rank; i++)
        dims[rank++] = data->dims[i];
    gather_arg g = {.data = data,
                    .indices = indices,
                    .length = data->dims[axis],
                    .block = op_product(data->dims, axis + 1, data->rank),
                    .count = gqac_tensor_count(indices)};
    for (int64_t i = 0; i < g.count; i++)
        GQAC_TRY(op_index(call, i, axis, &index));
    GQAC_TRY(op_copy_output(call, 0, data->dtype, rank, dims));
    g.out = &call->out[0];
    if (gqac_tensor_count(g.out) == 0)
        return GQAC_OK;
    int64_t items = gqac_tensor_count(g.out) / g.block;
    if (op_width(data->dtype) == 0) /* two elements share a byte: one owner */
        run_blocks(&g, 0, (size_t)items, 0);
    else
        op_parallel(call, items, 10 + g.block / 4, run_blocks, &g);
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", 0, "axis of the indices"),
    {.name = NULL},
};

const gqac_op gqac_op_gather = {
    .schema = {.name = "Gather",
               .domain = "",
               .since = 13,
               .inputs = "data indices",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "slices of data along an axis, by index"},
    .infer = infer,
    .eval = eval,
    .mixes = op_axis_mixes,
};
