/* com.microsoft.FusedMatMul: y = alpha * A' B', where A' and B' are the operands or their
 * transposes of the last two axes; a vector has none and stays as it is. Becomes Transpose, MatMul
 * and Mul. transBatchA and transBatchB, which move the batch, are not supported; nor is a vector B
 * beside a transposed A, where ONNX Runtime takes the elements of A in another order. Source: ONNX
 * Runtime contrib operators. */
#include "ops/matmul.h"

static const ir_attr_spec attrs[] = {
    {"alpha", IR_ATTR_FLOAT, .fallback = {.set = true, .f = 1}, .doc = "factor of the product"},
    {"transA", IR_ATTR_INT, .fallback = {.set = true, .i = 0}, .doc = "1: A is [...,K,M]"},
    {"transB", IR_ATTR_INT, .fallback = {.set = true, .i = 0}, .doc = "1: B is [...,N,K]"},
    {"transBatchA", IR_ATTR_INT, .fallback = {.set = true, .i = 0}, .doc = "only 0"},
    {"transBatchB", IR_ATTR_INT, .fallback = {.set = true, .i = 0}, .doc = "only 0"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    static const char *const names[] = {"transBatchA", "transBatchB"};
    for (int i = 0; i < 2; i++)
        if (ir_attr_int(node, names[i]))
            OP_FAIL(node, diag, GQAC_UNSUPPORTED, "%s = %lld is not supported", names[i],
                    (long long)ir_attr_int(node, names[i]));
    return GQAC_OK;
}

static bool is_transposed(const ir_node *node, int operand) {
    return op_in_type(node, operand).rank != 1 &&
           ir_attr_int(node, operand ? "transB" : "transA") != 0;
}

/* The dims of an operand as MatMul sees them; none when its rank is not known. */
static gqac_status dims_of(const ir_node *node, int operand, const ir_dim **dims, int *rank,
                           gqac_diag *diag) {
    *rank = op_in_type(node, operand).rank;
    for (int i = 0; i < *rank; i++)
        dims[i] = op_in_dim(node, operand, i);
    if (*rank == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "operand %d is a scalar", operand);
    if (*rank > 1 && is_transposed(node, operand)) {
        const ir_dim *last = dims[*rank - 1];
        dims[*rank - 1] = dims[*rank - 2];
        dims[*rank - 2] = last;
    }
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_dim *a[GQAC_MAX_RANK], *b[GQAC_MAX_RANK], *dims[GQAC_MAX_RANK + 2];
    int rank_a, rank_b, rank;
    int64_t x, y;
    GQAC_TRY(verify(node, diag));
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    const gqac_dtype dtype = op_in_type(node, 0).dtype;
    if (!is_transposed(node, 0) && !is_transposed(node, 1))
        return matmul_infer(node, dtype, diag);
    GQAC_TRY(dims_of(node, 0, a, &rank_a, diag));
    GQAC_TRY(dims_of(node, 1, b, &rank_b, diag));
    if (rank_a < 0 || rank_b < 0)
        return op_set_type(node, 0, dtype, -1, NULL, diag);
    if (rank_b == 1)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "a vector B beside a transposed A");
    if (ir_dim_is_const(a[rank_a - 1], &x) && ir_dim_is_const(b[rank_b - 2], &y) && x != y)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "inner dimensions %lld and %lld differ",
                (long long)x, (long long)y);
    ir_type a_batch = op_in_type(node, 0), b_batch = op_in_type(node, 1);
    a_batch.rank = rank_a > 2 ? rank_a - 2 : 0;
    b_batch.rank -= 2;
    GQAC_TRY(op_broadcast_types(node, &a_batch, &b_batch, &rank, dims, diag));
    if (rank_a > 1)
        dims[rank++] = a[rank_a - 2];
    dims[rank++] = b[rank_b - 1];
    return op_set_type(node, 0, dtype, rank, dims, diag);
}

/* A row of the product reads one row of A' and all of B'. */
static bool mixes(const ir_node *node) {
    const ir_value *a = ir_node_input(node, 0), *b = ir_node_input(node, 1);
    if (!is_transposed(node, 0))
        return matmul_mixes(node);
    if (op_axis_is_row(a, -2))
        return true;
    return !b->constant && (op_axis_is_row(b, -1) || op_axis_is_row(b, -2));
}

static ir_value *build_operand(ir_builder *b, ir_node *node, int operand) {
    ir_value *x = ir_node_input(node, operand);
    const int rank = op_in_type(node, operand).rank;
    int64_t perm[GQAC_MAX_RANK];
    if (!is_transposed(node, operand))
        return x;
    if (rank < 2 && b->status == GQAC_OK)
        b->status = op_fail(node, b->diag, GQAC_UNSUPPORTED, "the rank of operand %d is not known",
                            operand);
    if (b->status != GQAC_OK)
        return NULL;
    for (int i = 0; i < rank; i++)
        perm[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    ir_node *turned = op_build(b, "", "Transpose", 1, &x, 1);
    if (turned && !ir_attr_set_ints(turned, "perm", (size_t)rank, perm) && b->status == GQAC_OK)
        b->status = gqac_diag_oom(b->diag, "an attribute");
    return ir_build_result(b, turned, 0);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    ir_value *in[] = {build_operand(b, node, 0), build_operand(b, node, 1)};
    results[0] = op_build1(b, "", "MatMul", 2, in);
    const float alpha = ir_attr_float(node, "alpha");
    if (alpha == 1.0f)
        return;
    ir_value *factor = ir_build_f32(b, alpha);
    if (op_in_type(node, 0).dtype != GQAC_F32)
        factor = op_build_cast(b, factor, op_in_type(node, 0).dtype);
    results[0] = op_build1(b, "", "Mul", 2, (ir_value *[]){results[0], factor});
}

const gqac_op gqac_op_fused_mat_mul = {
    .schema = {.name = "FusedMatMul",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "A B",
               .outputs = "Y",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "Y = alpha * A' B', either operand transposed or not"},
    .verify = verify,
    .infer = infer,
    .expand = expand,
    .mixes = mixes,
};
