/* y fp32 from a padding mask (i32), for queries q [B,Hq,S,D] and keys k [B,Hkv,T,D]: 0 for visible
 * keys and `value` for padding.
 *   mask [B]       keys j < mask[b]                          -> [B,1,1,T]
 *   mask [2B]      mask[B+b] <= j < mask[b]                  -> [B,1,1,T]
 *   mask [3B+2]    the first B as [B], the rest is ignored   -> [B,1,1,T]
 *   mask [B,T]     where it is positive                      -> [B,1,1,T]
 *   mask [B,S,T]   likewise, for each query                  -> [B,1,S,T]
 *   mask [B,1], [1,1] with T > 1: nothing is padded          -> [B,1,1,T]
 * With a finite `value`, padding shares the weight of a row in which all keys are padding. */
#include "ops/attention.h"

#include <math.h>

enum { MASK, Q, K };

static const ir_attr_spec attrs[] = {
    {"value", IR_ATTR_FLOAT, .required = true, .doc = "added to the scores of padding"},
    OP_ATTR_INT("short", 0, "1: a mask [B,T'] or [B,S,T'] with T' < T gives T' columns"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    if (isnan(ir_attr_float(node, "value")))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute value is not a number");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    int rank = op_in_type(node, MASK).rank;
    GQAC_TRY(attention_want_rank(node, Q, 4, diag));
    GQAC_TRY(attention_want_rank(node, K, 4, diag));
    GQAC_TRY(attention_want_dtype(node, MASK, GQAC_I32, diag));
    if (rank == 0 || rank > 3)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "a padding mask has rank %d: must be 1 to 3", rank);
    bool cut = rank > 1 && ir_attr_int(node, "short") == 1;
    const ir_dim *one = ir_dim_const(op_dims(node), 1);
    const ir_dim *dims[4] = {op_in_dim(node, Q, 0), one,
                             rank == 3  ? op_in_dim(node, Q, 2)
                             : rank < 0 ? NULL
                                        : one,
                             cut ? op_in_dim(node, MASK, rank - 1) : op_in_dim(node, K, 2)};
    return op_set_type(node, 0, GQAC_F32, 4, dims, diag);
}

/* True for the masks that files have if a mask is required but nothing is padded. */
static bool is_empty(const gqac_tensor *mask, int64_t batch) {
    return mask->rank == 2 && mask->dims[1] == 1 && (mask->dims[0] == 1 || mask->dims[0] == batch);
}

static gqac_status check(op_call *call, int64_t batch, int64_t rows, int64_t keys) {
    const gqac_tensor *mask = call->in[MASK];
    int64_t n = mask->rank > 0 ? mask->dims[0] : 0;
    bool fits = false, cut = ir_attr_int(call->node, "short") == 1;
    if (mask->rank == 1)
        fits = n == batch || n == 2 * batch || n == 3 * batch + 2;
    else if (mask->rank == 2 && cut)
        fits = n == batch && mask->dims[1] <= keys;
    else if (mask->rank == 2)
        fits = (n == batch && mask->dims[1] == keys) || is_empty(mask, batch);
    else if (mask->rank == 3)
        fits = n == batch && mask->dims[1] == rows &&
               (cut ? mask->dims[2] <= keys : mask->dims[2] == keys);
    if (!fits)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "a padding mask of rank %d, first dimension %lld, does not fit a batch of %lld, "
                "%lld queries and %lld keys",
                mask->rank, (long long)n, (long long)batch, (long long)rows, (long long)keys);
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    float value = ir_attr_float(call->node, "value");
    GQAC_TRY(op_want(call, MASK, GQAC_I32));
    GQAC_TRY(attention_float(call, Q, 4));
    GQAC_TRY(attention_float(call, K, 4));
    const gqac_tensor *mask = call->in[MASK];
    int64_t batch = call->in[Q]->dims[0], rows = call->in[Q]->dims[2], keys = call->in[K]->dims[2];
    GQAC_TRY(check(call, batch, rows, keys));
    bool cut = mask->rank > 1 && ir_attr_int(call->node, "short") == 1;
    bool all = keys > 1 && !cut && is_empty(mask, batch);
    keys = cut ? mask->dims[mask->rank - 1] : keys;
    int64_t dims[4] = {batch, 1, mask->rank == 3 ? rows : 1, keys};
    GQAC_TRY(op_output(call, 0, GQAC_F32, 4, dims));
    const int32_t *m = mask->data;
    float *y = call->out[0].data;
    bool starts = mask->rank == 1 && mask->dims[0] == 2 * batch;
    for (int64_t i = 0, count = batch * dims[2] * keys; i < count; i++) {
        int64_t b = i / keys, j = i % keys; /* b counts queries when each has its own row */
        bool seen = all || (mask->rank > 1 ? m[i] > 0 : j < m[b] && (!starts || j >= m[batch + b]));
        y[i] = seen ? 0.0f : value;
    }
    return GQAC_OK;
}

const gqac_op gqac_op_padding_bias = {
    .schema = {.name = "padding_bias",
               .domain = "gqac",
               .since = 1,
               .inputs = "mask q k",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "0 or value, [B,1,1,T] or [B,1,S,T], from lengths or a mask of keys"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
