/* ScatterND: output = data, then output[indices[p]] = updates[p] (or what `reduction` makes of
 * both) for each index tuple p of r = indices.shape[-1] numbers, in order; negative ones count from
 * the end. Source: ONNX operator spec. Every index is checked before its use. */
#include "ops/scatter.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    int64_t r;
    GQAC_TRY(op_check_dtype(node, 0, op_scatter_types(node), diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_INDICES, diag));
    GQAC_TRY(op_check_same(node, 2, 0, diag));
    ir_type data = op_in_type(node, 0);
    if (op_in_type(node, 1).rank == 0 || data.rank == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "data and indices must have a rank of at least 1");
    if (data.rank > 0 && ir_dim_is_const(op_in_dim(node, 1, -1), &r) && r > data.rank)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "indices of %lld numbers do not fit data of rank %d", (long long)r, data.rank);
    return op_set_type_like(node, 0, data, diag);
}

static gqac_status check(op_call *call, int64_t *r) {
    const gqac_tensor *data = call->in[0], *indices = call->in[1], *updates = call->in[2];
    *r = indices->rank > 0 ? indices->dims[indices->rank - 1] : 0;
    bool fits = indices->rank > 0 && data->rank > 0 && *r <= data->rank &&
                updates->rank == indices->rank - 1 + data->rank - (int)*r;
    for (int i = 0; fits && i < updates->rank; i++)
        fits = updates->dims[i] == (i < indices->rank - 1
                                        ? indices->dims[i]
                                        : data->dims[i - (indices->rank - 1) + (int)*r]);
    if (!fits)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "updates must have the shape indices.shape[:-1] + data.shape[indices.shape[-1]:]");
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    int64_t strides[GQAC_MAX_RANK], r, index;
    GQAC_TRY(op_scatter_start(call));
    GQAC_TRY(check(call, &r));
    const gqac_tensor *data = call->in[0], *indices = call->in[1];
    op_strides(data->rank, data->dims, strides);
    int64_t piece = op_product(data->dims, (int)r, data->rank);
    int64_t n = op_product(indices->dims, 0, indices->rank - 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = 0;
        for (int64_t k = 0; k < r; k++) {
            GQAC_TRY(op_index(call, i * r + k, (int)k, &index));
            to += index * strides[k];
        }
        op_scatter_put(call, to, call->in[2], i * piece, piece);
    }
    return GQAC_OK;
}

static bool mixes(const ir_node *node) {
    return op_tuples_mix(node, 0);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_STRING("reduction", "none", "none, add, mul, max or min"),
    {.name = NULL},
};

const gqac_op gqac_op_scatter_nd = {
    .schema = {.name = "ScatterND",
               .domain = "",
               .since = 18,
               .introduced = 11,
               .inputs = "data indices updates",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "data with output[indices[p]] = updates[p]"},
    .infer = infer,
    .verify = op_scatter_verify,
    .eval = eval,
    .mixes = mixes,
};
