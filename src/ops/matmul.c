/* MatMul: N-dimensional matrix product with broadcast batches, as numpy.matmul.
 *
 * Floats are computed in fp32 by the contract (matmul_shared.c) and rounded once; f64 by one fma
 * chain; integers wrap. */
#include "ops/matmul.h"
#include "ops/elementwise.h"

#include <math.h>

#define TYPES (OP_FLOATS | OP_BIT(F64) | OP_INTS)

typedef struct product {
    const gqac_tensor *a, *b;
    gqac_tensor *y;
    matmul_shape s;
} product;

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, TYPES, diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    ir_type a = op_in_type(node, 0), b = op_in_type(node, 1);
    return matmul_infer(node, a.dtype ? a.dtype : b.dtype, diag);
}

/* f64 and integers, one output element after another. */
static void run_plain(void *arg, size_t begin, size_t end, int worker) {
    const product *p = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        int64_t column = (int64_t)i % p->s.n, rest = (int64_t)i / p->s.n;
        int64_t batch = rest / p->s.m, row = rest % p->s.m;
        int64_t a = matmul_matrix(&p->s, p->s.a_step, batch) * p->s.m * p->s.k + row * p->s.k;
        int64_t b = matmul_matrix(&p->s, p->s.b_step, batch) * p->s.k * p->s.n + column;
        if (p->y->dtype == GQAC_F64) {
            double sum = 0;
            for (int64_t k = 0; k < p->s.k; k++)
                sum = fma(((const double *)p->a->data)[a + k],
                          ((const double *)p->b->data)[b + k * p->s.n], sum);
            ((double *)p->y->data)[i] = sum;
            continue;
        }
        int64_t sum = 0;
        for (int64_t k = 0; k < p->s.k; k++)
            sum = op_wrap_add(
                sum, op_wrap_mul(op_get_i64(p->a, a + k), op_get_i64(p->b, b + k * p->s.n)));
        op_put_i64(p->y, (int64_t)i, sum);
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, 0, TYPES));
    GQAC_TRY(op_want(call, 1, call->in[0]->dtype));
    product p = {.a = call->in[0], .b = call->in[1], .y = &call->out[0]};
    int rank;
    int64_t dims[GQAC_MAX_RANK + 2];
    GQAC_TRY(matmul_shape_of(call, &p.s, &rank, dims));
    GQAC_TRY(op_output(call, 0, p.a->dtype, rank, dims));
    if (!OP_IN(OP_FLOATS, p.a->dtype)) {
        op_parallel(call, gqac_tensor_count(p.y), 1 + 4 * p.s.k, run_plain, &p);
        return GQAC_OK;
    }
    const op_work work = op_work_of(call);
    return matmul_floats(&work, &p.s, p.a, p.b, p.y);
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
    .mixes = matmul_mixes,
};
