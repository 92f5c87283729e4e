/* Reshape: the same elements under another shape; 0 copies the dimension (unless allowzero), one -1
 * is inferred. Source: ONNX operator spec. */
#include "ops/copy.h"

/* Computes the one missing dim, for which both products are equal. Equal factors cancel first, so
 * that symbols need no division. */
static const ir_dim *left_over(ir_dims *d, ir_type in, int rank, const ir_dim *const *out,
                               int missing) {
    bool used[GQAC_MAX_RANK] = {false};
    const ir_dim *above = ir_dim_const(d, 1), *below = above;
    for (int i = 0; i < rank; i++) {
        int k = 0;
        if (i == missing)
            continue;
        while (k < in.rank && (used[k] || in.dims[k] != out[i]))
            k++;
        if (k < in.rank)
            used[k] = true;
        else
            below = ir_dim_mul(d, below, out[i]);
    }
    for (int k = 0; k < in.rank; k++)
        if (!used[k])
            above = ir_dim_mul(d, above, in.dims[k]);
    int64_t zero;
    if (!above || !below || (ir_dim_is_const(below, &zero) && zero == 0))
        return NULL;
    return ir_dim_div_exact(d, above, below);
}

/* Checks constant dims; dims[missing] follows from the others. */
static gqac_status check_fit(const ir_node *node, int rank, const ir_dim *const *dims, int missing,
                             gqac_diag *diag) {
    gqac_tensor in;
    int64_t product = 1, value;
    if (!op_in_shape(node, 0, &in))
        return GQAC_OK;
    for (int i = 0; i < rank; i++)
        if (i != missing && (!ir_dim_is_const(dims[i], &value) || value < 0 ||
                             __builtin_mul_overflow(product, value, &product)))
            return GQAC_OK;
    const int64_t count = gqac_tensor_count(&in);
    if (missing >= 0 ? product > 0 && count % product != 0 : product != count)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "%lld elements do not fit a shape of %lld elements%s", (long long)count,
                (long long)product, missing >= 0 ? " in the dimensions beside -1" : "");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    int64_t value, known = op_elements(node, 1, GQAC_MAX_RANK, dims);
    int missing = -1, n_missing = 0, n_left = 0;
    GQAC_TRY(op_check_list(node, 1, GQAC_MAX_RANK, diag));
    if (known < 0) {
        bool fits = ir_dim_is_const(op_in_dim(node, 1, 0), &value) && value <= GQAC_MAX_RANK;
        return op_set_type(node, 0, type.dtype, fits ? (int)value : -1, NULL, diag);
    }
    for (int i = 0; i < (int)known; i++) {
        bool is_const = ir_dim_is_const(dims[i], &value);
        if (is_const && value < -1)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "dimension %lld of the shape is less than -1",
                    (long long)value);
        if (is_const && value == 0 && !ir_attr_int(node, "allowzero")) {
            if (type.rank >= 0 && i >= type.rank)
                OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                        "dimension %d is 0 (copied from the input), but the input has rank %d", i,
                        type.rank);
            dims[i] = type.rank >= 0 ? type.dims[i] : NULL;
        } else if (is_const && value == -1) {
            dims[i] = NULL;
            n_left++;
        }
        if (!dims[i]) {
            missing = i;
            n_missing++;
        }
    }
    if (n_left > 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%d dimensions are -1: at most one may be", n_left);
    if (n_missing == n_left)
        GQAC_TRY(check_fit(node, (int)known, dims, missing, diag));
    if (n_missing == 1 && type.rank >= 0)
        dims[missing] = left_over(op_dims(node), type, (int)known, dims, missing);
    GQAC_TRY(op_set_type(node, 0, type.dtype, (int)known, dims, diag));
    return op_pass_elements(node, 0, 0, diag);
}

static gqac_status eval(op_call *call) {
    const ir_node *node = call->node;
    int64_t dims[GQAC_MAX_RANK], rank, product = 1;
    int missing = -1;
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    GQAC_TRY(op_ints(call, 1, GQAC_MAX_RANK, dims, &rank));
    const gqac_tensor *x = call->in[0];
    int64_t count = gqac_tensor_count(x);
    for (int i = 0; i < (int)rank; i++) {
        if (dims[i] == 0 && !ir_attr_int(node, "allowzero") && i < x->rank)
            dims[i] = x->dims[i];
        if (dims[i] == -1 && missing < 0)
            missing = i;
        else if (dims[i] < 0 || __builtin_mul_overflow(product, dims[i], &product))
            OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "dimension %d is %lld", i,
                    (long long)dims[i]);
    }
    if (missing >= 0 && product > 0) {
        dims[missing] = count / product;
        product *= dims[missing];
    }
    if (product != count || (missing >= 0 && dims[missing] < 0))
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                "%lld elements do not fit the requested shape", (long long)count);
    return op_copy_as(call, (int)rank, dims);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("allowzero", 0, "1: a 0 in shape is a length"),
    {.name = NULL},
};

const gqac_op gqac_op_reshape = {
    .schema = {.name = "Reshape",
               .domain = "",
               .since = 14,
               .inputs = "data shape",
               .outputs = "reshaped",
               .attrs = attrs,
               .flags = IR_OP_IN_PLACE | IR_OP_MOVES,
               .rows = IR_ROWS_SHAPE,
               .doc = "the same elements under another shape"},
    .infer = infer,
    .eval = eval,
};
