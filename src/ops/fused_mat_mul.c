/* com.microsoft.FusedMatMul: y = alpha * A' B', where A' and B' are the operands, the last two axes
 * transposed or not; a vector is not transposed. With transBatchA or transBatchB the first axis of
 * the operand is moved after its batch axes first. Becomes Transpose, MatMul and Mul. A vector B
 * with a transposed A is not supported: ONNX Runtime reads the elements of A in another order.
 * Source: ONNX Runtime contrib operators. */
#include "ops/build.h"
#include "ops/matmul.h"

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1, "factor of the product"),
    OP_ATTR_INT("transA", 0, "1: A is [...,K,M]"),
    OP_ATTR_INT("transB", 0, "1: B is [...,N,K]"),
    OP_ATTR_INT("transBatchA", 0, "1: A is [M,...,K]"),
    OP_ATTR_INT("transBatchB", 0, "1: B is [K,...,N]"),
    {.name = NULL},
};

static bool is_set(const ir_node *node, int operand, const char *of_a, const char *of_b) {
    return ir_attr_int(node, operand ? of_b : of_a) != 0;
}

static bool is_transposed(const ir_node *node, int operand) {
    const int rank = op_in_type(node, operand).rank;
    return (rank != 1 && is_set(node, operand, "transA", "transB")) ||
           (rank != 1 && rank != 2 && is_set(node, operand, "transBatchA", "transBatchB"));
}

/* The axes of an operand of rank 2 or more, in the order in which MatMul reads them. */
static void order_of(const ir_node *node, int operand, int64_t perm[GQAC_MAX_RANK]) {
    const int rank = op_in_type(node, operand).rank;
    const bool batch = is_set(node, operand, "transBatchA", "transBatchB");
    for (int i = 0; i < rank; i++)
        perm[i] = i == rank - 1 || !batch ? i : (i + 1) % (rank - 1);
    if (is_set(node, operand, "transA", "transB")) {
        const int64_t last = perm[rank - 1];
        perm[rank - 1] = perm[rank - 2];
        perm[rank - 2] = last;
    }
}

/* The dims of an operand as MatMul reads them; none when its rank is not known. */
static gqac_status dims_of(const ir_node *node, int operand, const ir_dim **dims, int *rank,
                           gqac_diag *diag) {
    *rank = op_in_type(node, operand).rank;
    int64_t perm[GQAC_MAX_RANK] = {0};
    if (*rank == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "operand %d is a scalar: it must have at least one axis", operand);
    if (*rank > 1)
        order_of(node, operand, perm);
    for (int i = 0; i < *rank; i++)
        dims[i] = op_in_dim(node, operand, (int)perm[i]);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_dim *a[GQAC_MAX_RANK], *b[GQAC_MAX_RANK], *dims[GQAC_MAX_RANK + 2];
    int rank_a, rank_b, rank;
    int64_t x, y;
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
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "a transposed A with a vector B is not supported");
    if (ir_dim_is_const(a[rank_a - 1], &x) && ir_dim_is_const(b[rank_b - 2], &y) && x != y)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "inner dimensions %lld and %lld differ",
                (long long)x, (long long)y);
    const gqac_dtype any = GQAC_NONE;
    const ir_type a_batch = {any, rank_a > 2 ? rank_a - 2 : 0, a}, b_batch = {any, rank_b - 2, b};
    GQAC_TRY(op_broadcast_types(node, &a_batch, &b_batch, &rank, dims, diag));
    if (rank_a > 1)
        dims[rank++] = a[rank_a - 2];
    dims[rank++] = b[rank_b - 1];
    return op_set_type(node, 0, dtype, rank, dims, diag);
}

/* True if each row of the product reads the whole of an axis of rows: the k of A', or an axis of B'
 * other than its batch. */
static bool meets_rows(const ir_node *node, int operand) {
    const ir_value *x = ir_node_input(node, operand);
    const int rank = op_in_type(node, operand).rank;
    int64_t perm[GQAC_MAX_RANK];
    if (rank < 2)
        return op_axis_is_row(x, -1);
    order_of(node, operand, perm);
    return op_axis_is_row(x, (int)perm[rank - 1]) ||
           (operand && op_axis_is_row(x, (int)perm[rank - 2]));
}

static bool mixes(const ir_node *node) {
    if (!is_transposed(node, 0) && !is_transposed(node, 1))
        return matmul_mixes(node);
    return op_in_type(node, 0).rank < 2 || meets_rows(node, 0) ||
           (!ir_node_input(node, 1)->constant && meets_rows(node, 1));
}

static ir_value *build_operand(ir_builder *b, ir_node *node, int operand) {
    ir_value *x = ir_node_input(node, operand);
    const int rank = op_in_type(node, operand).rank;
    int64_t perm[GQAC_MAX_RANK];
    if (!is_transposed(node, operand))
        return x;
    if (rank < 2) {
        op_refuse(b, node, "the rank of operand %d is not known", operand);
        return NULL;
    }
    order_of(node, operand, perm);
    return op_build_transpose(b, x, rank, perm);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    const float alpha = ir_attr_float(node, "alpha");
    results[0] =
        OP_BUILD(b, "MatMul", .in = {build_operand(b, node, 0), build_operand(b, node, 1)});
    if (alpha == 1.0f)
        return;
    ir_value *factor = ir_build_f32(b, alpha);
    if (op_in_type(node, 0).dtype != GQAC_F32)
        factor = op_build_cast(b, factor, op_in_type(node, 0).dtype);
    results[0] = OP_BUILD(b, "Mul", .in = {results[0], factor});
}

const gqac_op gqac_op_fused_mat_mul = {
    .schema = {.name = "FusedMatMul",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "A B",
               .outputs = "Y",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "Y = alpha * A' B', each operand optionally transposed"},
    .infer = infer,
    .expand = expand,
    .mixes = mixes,
};
