/* MatMulInteger: Y = (A - a_zero_point) (B - b_zero_point) in i32, as numpy.matmul; sums wrap.
 * There is one zero point for the tensor, or one for each row of A ([M] or [.., M, 1]) and each
 * column of B ([N] or [.., 1, N]). Source: ONNX operator spec. */
#include "ops/matmul.h"

#include <string.h>

#include "ops/kernel.h"

enum { A, B, A_ZERO, B_ZERO, PIECE = 256 };
#define CODES (OP_BIT(I8) | OP_BIT(U8))

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    for (int i = A; i <= B_ZERO; i++)
        GQAC_TRY(op_check_dtype(node, i, CODES, diag));
    GQAC_TRY(op_check_same(node, A, A_ZERO, diag));
    GQAC_TRY(op_check_same(node, B, B_ZERO, diag));
    return matmul_infer(node, GQAC_I32, diag);
}

/* Zero point of row `row` of matrix `batch` of A, or of column `row` of B. */
typedef struct zero_points {
    const gqac_tensor *tensor; /* NULL: 0 */
    int64_t matrix_step, step;
} zero_points;

static int32_t zero_at(const zero_points *z, int64_t matrix, int64_t index) {
    return z->tensor ? (int32_t)op_get_i64(z->tensor, matrix * z->matrix_step + index * z->step)
                     : 0;
}

typedef struct product {
    const gqac_tensor *a, *b;
    int32_t *y;
    matmul_shape s;
    zero_points a_zero, b_zero;
    op_scratch scratch;
} product;

/* y += a * b of one row; products are below 2^17, sums wrap. */
OP_BODY void add_row_body(uint32_t *restrict y, int32_t a, const int16_t *restrict b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] += (uint32_t)(a * b[i]);
}
OP_KERNEL(add_row, (uint32_t * y, int32_t a, const int16_t *b, int64_t n), (y, a, b, n))

static int32_t code_at(const gqac_tensor *t, int64_t index) {
    return t->dtype == GQAC_U8 ? ((const uint8_t *)t->data)[index]
                               : ((const int8_t *)t->data)[index];
}

/* Items are (matrix, PIECE columns): their part of B is widened row by row. */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const product *p = arg;
    const int64_t pieces = (p->s.n + PIECE - 1) / PIECE;
    int16_t b[PIECE];
    int32_t *zero_a = (int32_t *)(void *)(p->scratch.base + (size_t)worker * p->scratch.stride);
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        const int64_t batch = item / pieces, first = item % pieces * PIECE;
        const int64_t n = p->s.n - first < PIECE ? p->s.n - first : PIECE;
        const int64_t in_a = matmul_matrix(&p->s, p->s.a_step, batch);
        const int64_t in_b = matmul_matrix(&p->s, p->s.b_step, batch);
        int32_t *y = p->y + batch * p->s.m * p->s.n + first;
        for (int64_t m = 0; m < p->s.m; m++) {
            zero_a[m] = zero_at(&p->a_zero, in_a, m);
            memset(y + m * p->s.n, 0, (size_t)n * sizeof *y);
        }
        for (int64_t k = 0; k < p->s.k; k++) {
            const int64_t row = (in_b * p->s.k + k) * p->s.n + first;
            for (int64_t i = 0; i < n; i++)
                b[i] = (int16_t)(code_at(p->b, row + i) - zero_at(&p->b_zero, in_b, first + i));
            for (int64_t m = 0; m < p->s.m; m++)
                add_row((uint32_t *)(void *)(y + m * p->s.n),
                        code_at(p->a, (in_a * p->s.m + m) * p->s.k + k) - zero_a[m], b, n);
        }
    }
}

/* Checks the number of zero points: one, one for each of `length` rows (columns), or as many for
 * each matrix. */
static gqac_status read_zero(op_call *call, int input, int64_t length, zero_points *z) {
    if (!ir_node_input(call->node, input))
        return GQAC_OK;
    const gqac_tensor *of = call->in[input - A_ZERO];
    GQAC_TRY(op_want(call, input, of->dtype));
    z->tensor = call->in[input];
    const int64_t n = gqac_tensor_count(z->tensor);
    const int64_t matrices = op_product(of->dims, 0, of->rank > 2 ? of->rank - 2 : 0);
    if (n == 1)
        return GQAC_OK;
    z->step = 1;
    z->matrix_step = n == length ? 0 : length;
    if (n != length && (z->tensor->rank < 2 || n != matrices * length))
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "input %d has %lld zero points, expected 1 or %lld", input, (long long)n,
                (long long)length);
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, A, CODES));
    GQAC_TRY(op_want_set(call, B, CODES));
    product p = {.a = call->in[A], .b = call->in[B]};
    int64_t dims[GQAC_MAX_RANK + 2];
    int rank;
    GQAC_TRY(matmul_shape_of(call, &p.s, &rank, dims));
    GQAC_TRY(read_zero(call, A_ZERO, p.s.m, &p.a_zero));
    GQAC_TRY(read_zero(call, B_ZERO, p.s.n, &p.b_zero));
    GQAC_TRY(op_output(call, 0, GQAC_I32, rank, dims));
    if (gqac_tensor_count(&call->out[0]) == 0)
        return GQAC_OK;
    p.y = call->out[0].data;
    GQAC_TRY(op_scratch_open(call, (size_t)p.s.m, sizeof(int32_t), &p.scratch));
    op_parallel(call, p.s.batches * ((p.s.n + PIECE - 1) / PIECE), 1 + p.s.k * (60 + 16 * p.s.m),
                run, &p);
    op_scratch_close(&p.scratch);
    return GQAC_OK;
}

const gqac_op gqac_op_matmul_integer = {
    .schema = {.name = "MatMulInteger",
               .domain = "",
               .since = 10,
               .introduced = 10,
               .inputs = "A B a_zero_point? b_zero_point?",
               .outputs = "Y",
               .rows = IR_ROWS_SHAPE,
               .doc = "Y = (A - a_zero_point) (B - b_zero_point) in i32"},
    .infer = infer,
    .eval = eval,
    .mixes = matmul_mixes,
};
