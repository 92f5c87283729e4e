/* What linear and linear_bf16 share: their attributes, and the shape of y [..,n] = x [..,k] times a
 * constant weight (+ bias [n]). */
#include "ops/linear.h"

const ir_attr_spec linear_attrs[] = {
    {"n", IR_ATTR_INT, .required = true, .doc = "columns of y"},
    {"k", IR_ATTR_INT, .required = true, .doc = "columns of x"},
    {.name = NULL},
};

gqac_status linear_verify(const ir_node *node, bool pairs, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "n", 1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "k", 1, INT32_MAX, diag));
    const ir_value *w = ir_node_input(node, LINEAR_W);
    if (!w || !w->constant)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the weight is not a constant");
    const int64_t n = ir_attr_int(node, "n"), k = ir_attr_int(node, "k");
    if (!(pairs ? linear_is_pairs : linear_is_packed)(w->constant, k, n))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "the weight is not packed as [%lld,%lld,%d], the shape for n = %lld and k = %lld",
                (long long)linear_panels(n), (long long)(pairs ? linear_pairs(k) : k),
                pairs ? LINEAR_PAIRS : LINEAR_PANEL, (long long)n, (long long)k);
    return GQAC_OK;
}

gqac_status linear_infer(ir_node *node, gqac_dtype dtype, gqac_diag *diag) {
    const int64_t n = ir_attr_int(node, "n"), k = ir_attr_int(node, "k");
    const ir_type x = op_in_type(node, LINEAR_X), bias = op_in_type(node, LINEAR_BIAS);
    int64_t length;
    if (bias.rank >= 0 &&
        (bias.rank != 1 ||
         (ir_dim_is_const(op_in_dim(node, LINEAR_BIAS, 0), &length) && length != n)))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "bias is not a row of n = %lld elements",
                (long long)n);
    if (x.rank < 0)
        return op_set_type(node, 0, dtype, -1, NULL, diag);
    if (x.rank == 0 || (ir_dim_is_const(op_in_dim(node, LINEAR_X, -1), &length) && length != k))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the last axis of x is not k = %lld", (long long)k);
    const ir_dim *dims[GQAC_MAX_RANK];
    for (int i = 0; i + 1 < x.rank; i++)
        dims[i] = x.dims[i];
    dims[x.rank - 1] = ir_dim_const(op_dims(node), n);
    return op_set_type(node, 0, dtype, x.rank, dims, diag);
}
