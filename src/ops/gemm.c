/* Gemm: Y [M,N] = alpha * A' B' + beta * C, A' = A [M,K] or A^T, B' = B [K,N] or B^T, C broadcast
 * to [M,N]. The product is MatMul's; then y = alpha * y (when alpha is not 1) and y + beta * c,
 * each step rounded to fp32, one rounding on store. */
#include "ops/matmul.h"

#include "ops/kernel.h"

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1, "factor of the product"),
    OP_ATTR_FLOAT("beta", 1, "factor of C"),
    OP_ATTR_INT("transA", 0, "A is [K,M]"),
    OP_ATTR_INT("transB", 0, "B is [N,K]"),
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    GQAC_TRY(op_check_same(node, 0, 2, diag));
    for (int i = 0; i < 2; i++) {
        int rank = op_in_type(node, i).rank;
        if (rank >= 0 && rank != 2)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "operand %d has rank %d, expected 2", i, rank);
    }
    const ir_dim *dims[2] = {op_in_dim(node, 0, ir_attr_int(node, "transA") ? 1 : 0),
                             op_in_dim(node, 1, ir_attr_int(node, "transB") ? 0 : 1)};
    return op_set_type(node, 0, op_in_type(node, 0).dtype, 2, dims, diag);
}

static bool mixes(const ir_node *node) {
    const ir_value *a = ir_node_input(node, 0), *b = ir_node_input(node, 1);
    if (!a || !b || op_axis_is_row(a, ir_attr_int(node, "transA") ? 0 : 1))
        return true;
    return !b->constant && (op_axis_is_row(b, 0) || op_axis_is_row(b, 1));
}

typedef struct gemm {
    const gqac_tensor *a, *b, *c;
    gqac_tensor *y;
    int64_t m, n, k, c_row, c_column; /* steps in C; 0 where broadcast */
    bool trans_a, trans_b;
    float alpha, beta;
} gemm;

static const float *piece_of_a(const matmul_job *job, int64_t batch, int64_t first, int64_t count,
                               int64_t k, int64_t n_k, float *scratch, int64_t *ld) {
    const gemm *g = job->arg;
    (void)batch;
    *ld = n_k;
    for (int64_t i = 0; i < count; i++) {
        if (!g->trans_a)
            op_get_f32s(g->a, (first + i) * g->k + k, n_k, scratch + i * n_k);
        for (int64_t j = 0; g->trans_a && j < n_k; j++)
            scratch[i * n_k + j] = op_get_f32(g->a, (k + j) * g->m + first + i);
    }
    return scratch;
}

static const float *piece_of_b(const matmul_job *job, int64_t batch, int64_t first, int64_t count,
                               int64_t k, int64_t n_k, float *scratch, int64_t *ld) {
    const gemm *g = job->arg;
    (void)batch;
    *ld = count;
    for (int64_t j = 0; j < n_k; j++) {
        if (!g->trans_b)
            op_get_f32s(g->b, (k + j) * g->n + first, count, scratch + j * count);
        for (int64_t i = 0; g->trans_b && i < count; i++)
            scratch[j * count + i] = op_get_f32(g->b, (first + i) * g->k + k + j);
    }
    return scratch;
}

static void store(const matmul_job *job, int64_t batch, int64_t row, int64_t column, int64_t count,
                  float *values) {
    const gemm *g = job->arg;
    (void)batch;
    for (int64_t i = 0; i < count; i++) {
        if (g->alpha != 1.0f)
            values[i] *= g->alpha;
        if (g->c) {
            int64_t at = row * g->c_row + (column + i) * g->c_column;
            values[i] += g->beta * op_get_f32(g->c, at);
        }
        values[i] = op_one_nan(values[i]);
    }
    op_put_f32s(g->y, row * g->n + column, count, values);
}

static gqac_status read_c(op_call *call, gemm *g) {
    if (call->node->n_inputs < 3 || !call->in[2])
        return GQAC_OK;
    GQAC_TRY(op_want(call, 2, g->a->dtype));
    g->c = call->in[2];
    int rank = g->c->rank;
    int64_t columns = rank > 0 ? g->c->dims[rank - 1] : 1, rows = rank > 1 ? g->c->dims[0] : 1;
    if (rank > 2 || (columns != 1 && columns != g->n) || (rows != 1 && rows != g->m))
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "C does not broadcast to [%lld,%lld]",
                (long long)g->m, (long long)g->n);
    g->c_column = columns == 1 ? 0 : 1;
    g->c_row = rows == 1 ? 0 : columns;
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, 0, OP_FLOATS));
    GQAC_TRY(op_want(call, 1, call->in[0]->dtype));
    gemm g = {.a = call->in[0],
              .b = call->in[1],
              .y = &call->out[0],
              .trans_a = ir_attr_int(call->node, "transA") != 0,
              .trans_b = ir_attr_int(call->node, "transB") != 0,
              .alpha = ir_attr_float(call->node, "alpha"),
              .beta = ir_attr_float(call->node, "beta")};
    if (g.a->rank != 2 || g.b->rank != 2)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "the operands must have rank 2");
    g.m = g.a->dims[g.trans_a ? 1 : 0];
    g.k = g.a->dims[g.trans_a ? 0 : 1];
    g.n = g.b->dims[g.trans_b ? 0 : 1];
    if (g.b->dims[g.trans_b ? 1 : 0] != g.k)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "inner dimensions %lld and %lld differ",
                (long long)g.k, (long long)g.b->dims[g.trans_b ? 1 : 0]);
    GQAC_TRY(read_c(call, &g));
    int64_t dims[2] = {g.m, g.n};
    GQAC_TRY(op_output(call, 0, g.a->dtype, 2, dims));
    matmul_job job = {.batches = 1,
                      .rows = g.m,
                      .columns = g.n,
                      .depth = g.k,
                      .a = piece_of_a,
                      .b = piece_of_b,
                      .store = store,
                      .arg = &g};
    return matmul_run(call, &job);
}

const gqac_op gqac_op_gemm = {
    .schema = {.name = "Gemm",
               .domain = "",
               .since = 13,
               .inputs = "A B C?",
               .outputs = "Y",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "Y [M,N] = alpha * A B + beta * C, A and B optionally transposed"},
    .infer = infer,
    .eval = eval,
    .mixes = mixes,
};
