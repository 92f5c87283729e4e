/* y [n,..,M,..] from packed rows x [1,..,N,..] and new_len [n], M = max new_len: row s of sequence
 * i becomes y[i,..,s,..], rows from new_len[i] on are zeros. The rows lie on `axis`. An x with one
 * row there, the same for all queries, is unchanged. For expansions of attention, which need a
 * batch row for each sequence; pack_rows is the inverse. */
#include "ops/attention.h"

#include <string.h>

enum { X, NEW_LEN };

static const ir_attr_spec attrs[] = {
    {"axis", IR_ATTR_INT, .required = true, .doc = "of the rows"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    return op_check_int(node, "axis", 1, GQAC_MAX_RANK - 1, diag);
}

static bool is_one(const ir_dim *dim) {
    int64_t n;
    return ir_dim_is_const(dim, &n) && n == 1;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_type x = op_in_type(node, X);
    const int axis = (int)ir_attr_int(node, "axis");
    const ir_dim *dims[GQAC_MAX_RANK];
    GQAC_TRY(attention_want_dtype(node, NEW_LEN, GQAC_I32, diag));
    GQAC_TRY(attention_want_rank(node, NEW_LEN, 1, diag));
    if (x.rank < 0)
        return op_set_type(node, 0, x.dtype, x.rank, NULL, diag);
    if (axis >= x.rank)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute axis = %d is out of range for rank %d",
                axis, x.rank);
    memcpy(dims, x.dims, (size_t)x.rank * sizeof *dims);
    if (!is_one(x.dims[axis])) {
        dims[0] = op_in_dim(node, NEW_LEN, 0);
        dims[axis] = NULL;
    }
    return op_set_type(node, 0, x.dtype, x.rank, dims, diag);
}

/* Bytes of the elements after an axis. */
static size_t inner_bytes(const gqac_tensor *x, int axis) {
    return (size_t)op_product(x->dims, axis + 1, x->rank) * op_width(x->dtype);
}

static gqac_status eval(op_call *call) {
    const int axis = (int)ir_attr_int(call->node, "axis");
    const gqac_tensor *x = call->in[X];
    const int32_t *fresh;
    int64_t dims[GQAC_MAX_RANK], most = 0, sum = 0;
    GQAC_TRY(op_want_set(call, X, OP_ANY & ~OP_NIBBLES));
    GQAC_TRY(attention_lengths(call, NEW_LEN, call->in[NEW_LEN]->dims[0], &fresh));
    if (x->rank <= axis || x->dims[0] != 1)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "x of rank %d must have a batch of 1 and rows on axis %d", x->rank, axis);
    const int64_t n = call->in[NEW_LEN]->dims[0];
    for (int64_t i = 0; i < n; i++) {
        most = fresh[i] > most ? fresh[i] : most;
        sum += fresh[i];
    }
    memcpy(dims, x->dims, sizeof dims);
    if (sum != x->dims[axis] && x->dims[axis] == 1) {
        GQAC_TRY(op_output_like(call, 0, x->dtype, x));
        memcpy(call->out[0].data, x->data, gqac_tensor_bytes(x));
        return GQAC_OK;
    }
    if (sum != x->dims[axis])
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "%lld packed rows for %lld new tokens",
                (long long)x->dims[axis], (long long)sum);
    dims[0] = n;
    dims[axis] = most;
    GQAC_TRY(op_output(call, 0, x->dtype, x->rank, dims));
    memset(call->out[0].data, 0, gqac_tensor_bytes(&call->out[0]));
    const size_t row = inner_bytes(x, axis);
    const int64_t outer = op_product(x->dims, 1, axis);
    int64_t begin = 0;
    for (int64_t i = 0; i < n; begin += fresh[i++])
        for (int64_t o = 0; o < outer; o++)
            memcpy((char *)call->out[0].data + (size_t)((i * outer + o) * most) * row,
                   (const char *)x->data + (size_t)(o * sum + begin) * row, (size_t)fresh[i] * row);
    return GQAC_OK;
}

const gqac_op gqac_op_unpack_rows = {
    .schema = {.name = "unpack_rows",
               .domain = "gqac",
               .since = 1,
               .inputs = "x new_len",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "packed rows [1,..,N,..] of n sequences as [n,..,M,..], padded with zeros"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
