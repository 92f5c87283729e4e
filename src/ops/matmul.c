/* MatMul: N-dimensional matrix product with broadcast batches, as numpy.matmul.
 *
 * Floats are computed in fp32 by the contract (matmul_shared.c) and rounded once; f64 by one fma
 * chain; integers wrap. */
#include "ops/matmul.h"

#include <math.h>

#include "base/check.h"

#define TYPES (OP_FLOATS | OP_BIT(F64) | OP_INTS)

/* Shapes as matrices: [batches..., M, K] x [batches..., K, N]. */
typedef struct product {
    const gqac_tensor *a, *b;
    gqac_tensor *y;
    int64_t batches, m, n, k;
    int batch_rank;
    int64_t batch_dims[GQAC_MAX_RANK];
    int64_t a_step[GQAC_MAX_RANK], b_step[GQAC_MAX_RANK]; /* in matrices; 0 where broadcast */
} product;

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, TYPES, diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    ir_type a = op_in_type(node, 0), b = op_in_type(node, 1);
    gqac_dtype dtype = a.dtype ? a.dtype : b.dtype;
    if (a.rank < 0 || b.rank < 0)
        return op_set_type(node, 0, dtype, -1, NULL, diag);
    if (a.rank == 0 || b.rank == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "a scalar operand");
    const ir_dim *rows = a.rank > 1 ? op_in_dim(node, 0, -2) : NULL;
    const ir_dim *columns = b.rank > 1 ? op_in_dim(node, 1, -1) : NULL;
    int64_t x, y;
    if (ir_dim_is_const(op_in_dim(node, 0, -1), &x) &&
        ir_dim_is_const(op_in_dim(node, 1, b.rank > 1 ? -2 : -1), &y) && x != y)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "inner dimensions %lld and %lld differ",
                (long long)x, (long long)y);
    ir_type a_batch = a, b_batch = b;
    a_batch.rank = a.rank > 2 ? a.rank - 2 : 0;
    b_batch.rank = b.rank > 2 ? b.rank - 2 : 0;
    const ir_dim *dims[GQAC_MAX_RANK + 2];
    int rank;
    GQAC_TRY(op_broadcast_types(node, &a_batch, &b_batch, &rank, dims, diag));
    if (a.rank > 1)
        dims[rank++] = rows;
    if (b.rank > 1)
        dims[rank++] = columns;
    return op_set_type(node, 0, dtype, rank, dims, diag);
}

/* A row of the product reads one row of A and all of B. */
static bool mixes(const ir_node *node) {
    const ir_value *a = ir_node_input(node, 0), *b = ir_node_input(node, 1);
    if (!a || !b || (a->type.rank < 2 && !a->constant) || op_axis_is_row(a, -1))
        return true;
    int matrix = b->type.rank < 2 ? 1 : 2;
    for (int axis = 1; axis <= matrix; axis++)
        if (!b->constant && op_axis_is_row(b, -axis))
            return true;
    return false;
}

static gqac_status shape(op_call *call, product *p, int *rank, int64_t *dims) {
    const gqac_tensor *a = p->a, *b = p->b;
    if (a->rank == 0 || b->rank == 0)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "a scalar operand");
    p->m = a->rank > 1 ? a->dims[a->rank - 2] : 1;
    p->k = a->dims[a->rank - 1];
    p->n = b->rank > 1 ? b->dims[b->rank - 1] : 1;
    int64_t b_k = b->dims[b->rank > 1 ? b->rank - 2 : 0];
    if (b_k != p->k)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "inner dimensions %lld and %lld differ",
                (long long)p->k, (long long)b_k);
    gqac_tensor a_batch = *a, b_batch = *b;
    a_batch.rank = a->rank > 2 ? a->rank - 2 : 0;
    b_batch.rank = b->rank > 2 ? b->rank - 2 : 0;
    GQAC_TRY(op_broadcast(call, &a_batch, &b_batch, &p->batch_rank, p->batch_dims));
    int64_t a_size = 1, b_size = 1;
    for (int i = 0; i < p->batch_rank; i++) {
        int to = p->batch_rank - 1 - i, in_a = a_batch.rank - 1 - i, in_b = b_batch.rank - 1 - i;
        int64_t x = in_a >= 0 ? a->dims[in_a] : 1, y = in_b >= 0 ? b->dims[in_b] : 1;
        p->a_step[to] = x == 1 ? 0 : a_size;
        p->b_step[to] = y == 1 ? 0 : b_size;
        a_size *= x;
        b_size *= y;
    }
    p->batches = op_product(p->batch_dims, 0, p->batch_rank);
    *rank = p->batch_rank;
    for (int i = 0; i < p->batch_rank; i++)
        dims[i] = p->batch_dims[i];
    if (a->rank > 1)
        dims[(*rank)++] = p->m;
    if (b->rank > 1)
        dims[(*rank)++] = p->n;
    return GQAC_OK;
}

/* First element of matrix `batch` of an operand. */
static int64_t matrix_at(const product *p, const int64_t *step, int64_t batch, int64_t size) {
    int64_t matrix = 0;
    for (int i = p->batch_rank - 1; i >= 0; i--) {
        matrix += batch % p->batch_dims[i] * step[i];
        batch /= p->batch_dims[i];
    }
    return matrix * size;
}

static const float *piece_of_a(const matmul_job *job, int64_t batch, int64_t first, int64_t count,
                               int64_t k, int64_t n_k, float *room, int64_t *ld) {
    const product *p = job->arg;
    int64_t at = matrix_at(p, p->a_step, batch, p->m * p->k) + first * p->k + k;
    if (p->a->dtype == GQAC_F32) {
        *ld = p->k;
        return (const float *)p->a->data + at;
    }
    *ld = n_k;
    for (int64_t m = 0; m < count; m++)
        op_get_f32s(p->a, at + m * p->k, n_k, room + m * n_k);
    return room;
}

static const float *piece_of_b(const matmul_job *job, int64_t batch, int64_t first, int64_t count,
                               int64_t k, int64_t n_k, float *room, int64_t *ld) {
    const product *p = job->arg;
    int64_t at = matrix_at(p, p->b_step, batch, p->k * p->n) + k * p->n + first;
    if (p->b->dtype == GQAC_F32) {
        *ld = p->n;
        return (const float *)p->b->data + at;
    }
    *ld = count;
    for (int64_t i = 0; i < n_k; i++)
        op_get_f32s(p->b, at + i * p->n, count, room + i * count);
    return room;
}

static void store(const matmul_job *job, int64_t batch, int64_t row, int64_t column, int64_t count,
                  float *values) {
    const product *p = job->arg;
    op_put_f32s(p->y, (batch * p->m + row) * p->n + column, count, values);
}

/* f64 and integers, one output element after another. */
static void run_plain(void *arg, size_t begin, size_t end, int worker) {
    const product *p = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        int64_t column = (int64_t)i % p->n, rest = (int64_t)i / p->n;
        int64_t batch = rest / p->m, row = rest % p->m;
        int64_t a = matrix_at(p, p->a_step, batch, p->m * p->k) + row * p->k;
        int64_t b = matrix_at(p, p->b_step, batch, p->k * p->n) + column;
        if (p->y->dtype == GQAC_F64) {
            double sum = 0;
            for (int64_t k = 0; k < p->k; k++)
                sum = fma(((const double *)p->a->data)[a + k],
                          ((const double *)p->b->data)[b + k * p->n], sum);
            ((double *)p->y->data)[i] = sum;
            continue;
        }
        int64_t sum = 0;
        for (int64_t k = 0; k < p->k; k++)
            sum = op_wrap_add(sum,
                              op_wrap_mul(op_get_i64(p->a, a + k), op_get_i64(p->b, b + k * p->n)));
        op_put_i64(p->y, (int64_t)i, sum);
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, 0, TYPES));
    GQAC_TRY(op_want(call, 1, call->in[0]->dtype));
    product p = {.a = call->in[0], .b = call->in[1], .y = &call->out[0]};
    int rank;
    int64_t dims[GQAC_MAX_RANK + 2];
    GQAC_TRY(shape(call, &p, &rank, dims));
    if (rank > GQAC_MAX_RANK)
        OP_FAIL(call->node, call->diag, GQAC_UNSUPPORTED, "a result of rank %d", rank);
    GQAC_TRY(op_output(call, 0, p.a->dtype, rank, dims));
    if (!OP_IN(OP_FLOATS, p.a->dtype)) {
        op_parallel(call, gqac_tensor_count(p.y), 1 + 4 * p.k, run_plain, &p);
        return GQAC_OK;
    }
    matmul_job job = {.batches = p.batches,
                      .rows = p.m,
                      .columns = p.n,
                      .depth = p.k,
                      .a = piece_of_a,
                      .b = piece_of_b,
                      .store = store,
                      .arg = &p};
    return matmul_run(call, &job);
}

const gqac_op gqac_op_matmul = {
    .schema = {.name = "MatMul",
               .domain = "",
               .since = 13,
               .inputs = "A B",
               .outputs = "Y",
               .rows = IR_ROWS_SHAPE,
               .doc = "Y = A B over the last two axes, other axes broadcast"},
    .infer = infer,
    .eval = eval,
    .mixes = mixes,
};
