/* y[m][n] = sum over k of a[m][k] * b[k][n], as the contract defines it: k is cut at multiples of
 * GQAC_K_PIECE; in a piece one fma chain over k, ascending, from zero; pieces are added ascending.
 *
 * A row of y is computed as a whole, acc[n] = fma(a[k], b[k][n], acc[n]): each column has its own
 * chain, so the bits depend neither on the width of vectors nor on the number of rows. */
#include "ops/matmul.h"

#include <string.h>

#include "ops/kernel.h"

/* acc[n] of one row over one piece. */
OP_BODY void row_piece(const float *a, const float *b, int64_t ldb, int64_t n_k, int64_t n,
                       float *restrict acc) {
    memset(acc, 0, (size_t)n * sizeof *acc);
    int64_t k = 0;
    for (; k + 4 <= n_k; k += 4) {
        const float *rows[4] = {b + k * ldb, b + (k + 1) * ldb, b + (k + 2) * ldb,
                                b + (k + 3) * ldb};
        op_axpy4(acc, a + k, rows, n);
    }
    for (; k < n_k; k++)
        op_axpy(acc, a[k], b + k * ldb, n);
}

/* total[m][n] = piece, or total + piece: the value of the first piece starts the sum. */
typedef struct panel {
    const float *a, *b;
    int64_t lda, ldb, n_k, rows, n;
    bool first;
    float *total; /* [rows][MATMUL_COLUMNS] */
} panel;

OP_BODY void add_piece_body(const panel *p) {
    float acc[MATMUL_COLUMNS];
    for (int64_t m = 0; m < p->rows; m++) {
        float *total = p->total + m * MATMUL_COLUMNS;
        row_piece(p->a + m * p->lda, p->b, p->ldb, p->n_k, p->n, p->first ? total : acc);
        for (int64_t i = 0; !p->first && i < p->n; i++)
            total[i] += acc[i];
    }
}
OP_KERNEL(add_piece, (const panel *p), (p))

static int64_t piece_length(const matmul_job *job) {
#ifdef GQAC_CONTROL_KERNEL_BY_ROWS /* negative control: other arithmetic for a single row */
    if (job->rows == 1)
        return 7;
#endif
    (void)job;
    return GQAC_K_PIECE;
}

typedef struct unit_scratch {
    float total[MATMUL_ROWS * MATMUL_COLUMNS];
    float a[MATMUL_ROWS * GQAC_K_PIECE];
    float b[GQAC_K_PIECE * MATMUL_COLUMNS];
} unit_scratch;

typedef struct plan {
    const matmul_job *job;
    op_scratch scratch;
    int64_t row_blocks, column_blocks;
} plan;

static void run_unit(const matmul_job *job, int64_t batch, int64_t row, int64_t column,
                     unit_scratch *scratch) {
    int64_t rows = job->rows - row < MATMUL_ROWS ? job->rows - row : MATMUL_ROWS;
    int64_t n = job->columns - column < MATMUL_COLUMNS ? job->columns - column : MATMUL_COLUMNS;
    int64_t step = piece_length(job);
    memset(scratch->total, 0, sizeof scratch->total);
    for (int64_t k = 0; k < job->depth; k += step) {
        panel p = {.n_k = job->depth - k < step ? job->depth - k : step,
                   .rows = rows,
                   .n = n,
                   .first = k == 0,
                   .total = scratch->total};
        p.a = job->a(job, batch, row, rows, k, p.n_k, scratch->a, &p.lda);
        p.b = job->b(job, batch, column, n, k, p.n_k, scratch->b, &p.ldb);
        add_piece(&p);
    }
    for (int64_t m = 0; m < rows; m++) {
        float *values = scratch->total + m * MATMUL_COLUMNS;
        for (int64_t i = 0; i < n; i++)
            values[i] = op_one_nan(values[i]);
        job->store(job, batch, row + m, column, n, values);
    }
}

static void run_units(void *arg, size_t begin, size_t end, int worker) {
    const plan *p = arg;
    void *memory = p->scratch.base + (size_t)worker * p->scratch.stride;
    for (size_t i = begin; i < end; i++) {
        int64_t column = (int64_t)i % p->column_blocks, rest = (int64_t)i / p->column_blocks;
        run_unit(p->job, rest / p->row_blocks, rest % p->row_blocks * MATMUL_ROWS,
                 column * MATMUL_COLUMNS, memory);
    }
}

void matmul_measure(int threads, gqac_parts *parts) {
    op_scratch_measure(parts, threads, 1, sizeof(unit_scratch));
}

gqac_status matmul_do(const op_work *work, const matmul_job *job) {
    plan p = {.job = job,
              .row_blocks = (job->rows + MATMUL_ROWS - 1) / MATMUL_ROWS,
              .column_blocks = (job->columns + MATMUL_COLUMNS - 1) / MATMUL_COLUMNS};
    int64_t units = job->batches * p.row_blocks * p.column_blocks;
    if (units <= 0)
        return GQAC_OK;
    GQAC_TRY(op_work_scratch(work, 1, sizeof(unit_scratch), &p.scratch));
    int64_t rows = job->rows < MATMUL_ROWS ? job->rows : MATMUL_ROWS;
    int64_t columns = job->columns < MATMUL_COLUMNS ? job->columns : MATMUL_COLUMNS;
    op_work_parallel(work, units, 1 + rows * columns * job->depth / 16, run_units, &p);
    op_scratch_close(&p.scratch);
    return GQAC_OK;
}

gqac_status matmul_run(op_call *call, const matmul_job *job) {
    const op_work work = op_work_of(call);
    return matmul_do(&work, job);
}

/* ---- floats ---------------------------------------------------------------- */

typedef struct product {
    const gqac_tensor *a, *b;
    gqac_tensor *y;
    matmul_shape s;
} product;

/* [rows][n] of a matrix with rows of `step` elements, from element `first` on: where it lies, or
 * widened in scratch. */
static const float *piece_of(const gqac_tensor *t, int64_t first, int64_t step, int64_t rows,
                             int64_t n, float *scratch, int64_t *ld) {
    if (t->dtype == GQAC_F32) {
        *ld = step;
        return (const float *)t->data + first;
    }
    *ld = n;
    for (int64_t i = 0; i < rows; i++)
        op_get_f32s(t, first + i * step, n, scratch + i * n);
    return scratch;
}

static const float *piece_of_a(const matmul_job *job, int64_t batch, int64_t first, int64_t count,
                               int64_t k, int64_t n_k, float *scratch, int64_t *ld) {
    const product *p = job->arg;
    const int64_t matrix = matmul_matrix(&p->s, p->s.a_step, batch) * p->s.m;
    return piece_of(p->a, (matrix + first) * p->s.k + k, p->s.k, count, n_k, scratch, ld);
}

static const float *piece_of_b(const matmul_job *job, int64_t batch, int64_t first, int64_t count,
                               int64_t k, int64_t n_k, float *scratch, int64_t *ld) {
    const product *p = job->arg;
    const int64_t matrix = matmul_matrix(&p->s, p->s.b_step, batch) * p->s.k;
    return piece_of(p->b, (matrix + k) * p->s.n + first, p->s.n, n_k, count, scratch, ld);
}

static void store(const matmul_job *job, int64_t batch, int64_t row, int64_t column, int64_t count,
                  float *values) {
    const product *p = job->arg;
    op_put_f32s(p->y, (batch * p->s.m + row) * p->s.n + column, count, values);
}

gqac_status matmul_floats(const op_work *work, const matmul_shape *s, const gqac_tensor *a,
                          const gqac_tensor *b, gqac_tensor *y) {
    const product p = {.a = a, .b = b, .y = y, .s = *s};
    const matmul_job job = {.batches = s->batches,
                            .rows = s->m,
                            .columns = s->n,
                            .depth = s->k,
                            .a = piece_of_a,
                            .b = piece_of_b,
                            .store = store,
                            .arg = &p};
    return matmul_do(work, &job);
}

/* ---- shapes of MatMul and MatMulInteger ------------------------------------ */

gqac_status matmul_infer(ir_node *node, gqac_dtype dtype, gqac_diag *diag) {
    ir_type a = op_in_type(node, 0), b = op_in_type(node, 1);
    if (a.rank < 0 || b.rank < 0)
        return op_set_type(node, 0, dtype, -1, NULL, diag);
    if (a.rank == 0 || b.rank == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "an operand is a scalar: it must have at least one axis");
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

bool matmul_mixes(const ir_node *node) {
    const ir_value *a = ir_node_input(node, 0), *b = ir_node_input(node, 1);
    if (!a || !b || (a->type.rank < 2 && !a->constant) || op_axis_is_row(a, -1))
        return true;
    int matrix = b->type.rank < 2 ? 1 : 2;
    for (int axis = 1; axis <= matrix; axis++)
        if (!b->constant && op_axis_is_row(b, -axis))
            return true;
    return false;
}

gqac_status matmul_fit(const op_work *work, const gqac_tensor *a, const gqac_tensor *b,
                       matmul_shape *p, int *rank, int64_t *dims) {
    if (a->rank == 0 || b->rank == 0)
        OP_STOP(work, GQAC_INVALID_INPUT, "an operand is a scalar: it must have at least one axis");
    p->m = a->rank > 1 ? a->dims[a->rank - 2] : 1;
    p->k = a->dims[a->rank - 1];
    p->n = b->rank > 1 ? b->dims[b->rank - 1] : 1;
    int64_t b_k = b->dims[b->rank > 1 ? b->rank - 2 : 0];
    if (b_k != p->k)
        OP_STOP(work, GQAC_INVALID_INPUT, "inner dimensions %lld and %lld differ", (long long)p->k,
                (long long)b_k);
    gqac_tensor a_batch = *a, b_batch = *b;
    a_batch.rank = a->rank > 2 ? a->rank - 2 : 0;
    b_batch.rank = b->rank > 2 ? b->rank - 2 : 0;
    GQAC_TRY(op_work_broadcast(work, &a_batch, &b_batch, &p->batch_rank, p->batch_dims));
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
    if (*rank > GQAC_MAX_RANK)
        OP_STOP(work, GQAC_UNSUPPORTED, "the result has rank %d, the maximum is %d", *rank,
                GQAC_MAX_RANK);
    return GQAC_OK;
}

gqac_status matmul_shape_of(op_call *call, matmul_shape *s, int *rank, int64_t *dims) {
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    return matmul_fit(&work, call->in[0], call->in[1], s, rank, dims);
}

int64_t matmul_matrix(const matmul_shape *p, const int64_t *step, int64_t batch) {
    int64_t matrix = 0;
    for (int i = p->batch_rank - 1; i >= 0; i--) {
        matrix += batch % p->batch_dims[i] * step[i];
        batch /= p->batch_dims[i];
    }
    return matrix;
}
