/* Checks and dims shared by the ops of attention. */
#include "ops/attention.h"

gqac_status attention_lengths(op_call *call, int input, int64_t batch, const int32_t **lengths) {
    GQAC_TRY(op_want(call, input, GQAC_I32));
    const gqac_tensor *tensor = call->in[input];
    char name[64];
    ir_schema_name(call->node->op->inputs, input, name, sizeof name);
    if (tensor->rank != 1 || tensor->dims[0] != batch)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "%s must have the shape [%lld]", name,
                (long long)batch);
    const int32_t *values = tensor->data;
    for (int64_t b = 0; b < batch; b++)
        if (values[b] < 0)
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE, "%s[%lld] = %d is negative", name,
                    (long long)b, values[b]);
    *lengths = values;
    return GQAC_OK;
}

gqac_status attention_ranges(op_call *call, int lo_input, int64_t batch, int64_t rows, int64_t keys,
                             const int32_t **lo, const int32_t **hi) {
    for (int i = lo_input; i < lo_input + 2; i++) {
        GQAC_TRY(op_want(call, i, GQAC_I32));
        const gqac_tensor *tensor = call->in[i];
        if (tensor->rank != 2 || tensor->dims[0] != batch || tensor->dims[1] != rows)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "the visible range must have the shape [%lld,%lld]", (long long)batch,
                    (long long)rows);
    }
    *lo = call->in[lo_input]->data;
    *hi = call->in[lo_input + 1]->data;
    for (int64_t i = 0; i < batch * rows; i++)
        if ((*lo)[i] < 0 || (*hi)[i] < (*lo)[i] || (*hi)[i] > keys)
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                    "visible keys [%d,%d) of row %lld do not lie in the %lld keys", (*lo)[i],
                    (*hi)[i], (long long)i, (long long)keys);
    return GQAC_OK;
}

gqac_status attention_float(op_call *call, int input, int rank) {
    GQAC_TRY(op_want_set(call, input, OP_FLOATS));
    if (call->in[input]->rank == rank)
        return GQAC_OK;
    char name[64];
    ir_schema_name(call->node->op->inputs, input, name, sizeof name);
    OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "input '%s' has rank %d, expected %d", name,
            call->in[input]->rank, rank);
}

gqac_status attention_want_dtype(const ir_node *node, int input, gqac_dtype dtype,
                                 gqac_diag *diag) {
    gqac_dtype have = op_in_type(node, input).dtype;
    if (have == GQAC_NONE || have == dtype)
        return GQAC_OK;
    char name[64];
    ir_schema_name(node->op->inputs, input, name, sizeof name);
    OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input '%s' has the type %s, expected %s", name,
            gqac_dtype_name(have), gqac_dtype_name(dtype));
}

gqac_status attention_want_rank(const ir_node *node, int input, int rank, gqac_diag *diag) {
    int have = op_in_type(node, input).rank;
    if (have < 0 || have == rank)
        return GQAC_OK;
    char name[64];
    ir_schema_name(node->op->inputs, input, name, sizeof name);
    OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input '%s' has rank %d, expected %d", name, have,
            rank);
}

gqac_status attention_same_dim(const ir_node *node, const ir_dim *a, const ir_dim *b,
                               const char *what, gqac_diag *diag) {
    int64_t x, y;
    if (!ir_dim_is_const(a, &x) || !ir_dim_is_const(b, &y) || x == y)
        return GQAC_OK;
    OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%s: %lld, expected %lld", what, (long long)x,
            (long long)y);
}

const ir_dim *attention_capacity(const ir_node *node, int total, int past) {
    ir_dims *dims = op_dims(node);
    const ir_dim *t = NULL;
    const ir_dim *p = ir_node_input(node, past) ? op_in_dim(node, past, 2) : ir_dim_const(dims, 0);
    if (op_elements(node, total, 1, &t) != 1)
        return NULL;
    return ir_dim_max(dims, t, p);
}
