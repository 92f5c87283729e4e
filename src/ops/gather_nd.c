/* GatherND: output[p] = data[the first batch_dims numbers of p][indices[p]] for each index tuple p
 * of r = indices.shape[-1] numbers; negative ones count from the end. Source: ONNX operator spec.
 * Every index is checked before its use. */
#include "ops/scatter.h"

#include <string.h>

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    return op_check_int(node, "batch_dims", 0, GQAC_MAX_RANK - 1, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type data = op_in_type(node, 0), indices = op_in_type(node, 1);
    int64_t r, batch = ir_attr_int(node, "batch_dims");
    const ir_dim *dims[2 * GQAC_MAX_RANK];
    int rank = 0;
    GQAC_TRY(op_check_dtype(node, 0, OP_NUMBERS | OP_BIT(BOOL), diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_INDICES, diag));
    if (data.rank == 0 || indices.rank == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "data and indices must have a rank of at least 1");
    if (data.rank < 0 || indices.rank < 0 || !ir_dim_is_const(indices.dims[indices.rank - 1], &r))
        return op_set_type(node, 0, data.dtype, -1, NULL, diag);
    if (r < 1 || r + batch > data.rank || batch >= indices.rank)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "indices of %lld numbers after %lld batch axes do not fit data of rank %d",
                (long long)r, (long long)batch, data.rank);
    for (int i = 0; i < indices.rank - 1; i++)
        dims[rank++] = indices.dims[i];
    for (int i = (int)(batch + r); i < data.rank; i++)
        dims[rank++] = data.dims[i];
    if (rank > GQAC_MAX_RANK)
        OP_FAIL(node, diag, GQAC_LIMIT, "the result has rank %d, the maximum is %d", rank,
                GQAC_MAX_RANK);
    return op_set_type(node, 0, data.dtype, rank, dims, diag);
}

static gqac_status shape_of(op_call *call, int *rank, int64_t *dims) {
    const gqac_tensor *data = call->in[0], *indices = call->in[1];
    int64_t batch = ir_attr_int(call->node, "batch_dims");
    int64_t r = indices->rank > 0 ? indices->dims[indices->rank - 1] : 0;
    bool fits = r >= 1 && r + batch <= data->rank && batch < indices->rank &&
                indices->rank - 1 + data->rank - (batch + r) <= GQAC_MAX_RANK;
    for (int i = 0; fits && i < batch; i++)
        fits = data->dims[i] == indices->dims[i];
    if (!fits)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "indices of rank %d, the last dimension %lld, do not fit data of rank %d after "
                "%lld batch axes",
                indices->rank, (long long)r, data->rank, (long long)batch);
    *rank = 0;
    for (int i = 0; i < indices->rank - 1; i++)
        dims[(*rank)++] = indices->dims[i];
    for (int i = (int)(batch + r); i < data->rank; i++)
        dims[(*rank)++] = data->dims[i];
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    int64_t strides[GQAC_MAX_RANK], dims[GQAC_MAX_RANK], index;
    int rank, batch = (int)ir_attr_int(call->node, "batch_dims");
    GQAC_TRY(op_want_set(call, 0, OP_NUMBERS | OP_BIT(BOOL)));
    GQAC_TRY(op_want_set(call, 1, OP_INDICES));
    const gqac_tensor *data = call->in[0], *indices = call->in[1];
    GQAC_TRY(shape_of(call, &rank, dims));
    GQAC_TRY(op_output(call, 0, data->dtype, rank, dims));
    int64_t r = indices->dims[indices->rank - 1];
    int64_t piece = op_product(data->dims, batch + (int)r, data->rank);
    int64_t chunk = op_product(data->dims, batch, data->rank);
    int64_t n = op_product(indices->dims, 0, indices->rank - 1);
    int64_t each = op_product(indices->dims, batch, indices->rank - 1); /* tuples of a batch */
    size_t width = op_width(data->dtype);
    op_strides(data->rank, data->dims, strides);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = i / each * chunk;
        for (int64_t k = 0; k < r; k++) {
            GQAC_TRY(op_index(call, i * r + k, batch + (int)k, &index));
            from += index * strides[batch + k];
        }
        if (piece > 0)
            memcpy((char *)call->out[0].data + (size_t)(i * piece) * width,
                   (const char *)data->data + (size_t)from * width, (size_t)piece * width);
    }
    return GQAC_OK;
}

static bool mixes(const ir_node *node) {
    return op_tuples_mix(node, ir_attr_int(node, "batch_dims"));
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("batch_dims", 0, "leading axes that data and indices share"),
    {.name = NULL},
};

const gqac_op gqac_op_gather_nd = {
    .schema = {.name = "GatherND",
               .domain = "",
               .since = 13,
               .introduced = 11,
               .inputs = "data indices",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "output[p] = data[indices[p]], whole pieces of data"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
    .mixes = mixes,
};
