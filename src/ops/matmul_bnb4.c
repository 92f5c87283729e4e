/* com.microsoft.MatMulBnb4: Y [.., N] = A [.., K] w^T with w [N,K] in 4-bit codes of a table of
 * values (FP4 or NF4), high nibble first, times one absmax for every block_size consecutive
 * elements of w. w is computed in fp32 and the product is MatMul's. Source: ONNX Runtime contrib
 * operators; the values of NF4: Dettmers et al., QLoRA. */
#include "ops/matmul.h"

#include "base/check.h"

enum { A, B, ABSMAX };

static const float tables[2][16] = {
    {0.0f, 0.00520833333f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f,
     -0.00520833333f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f},
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
     -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
     0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
     0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f},
};

static const ir_attr_spec attrs[] = {
    {.name = "K", .kind = IR_ATTR_INT, .required = true, .doc = "columns of A"},
    {.name = "N", .kind = IR_ATTR_INT, .required = true, .doc = "columns of Y"},
    {.name = "block_size",
     .kind = IR_ATTR_INT,
     .required = true,
     .doc = "a power of two, at least 16"},
    {.name = "quant_type", .kind = IR_ATTR_INT, .required = true, .doc = "0: FP4, 1: NF4"},
    OP_ATTR_INT("transB", 1, "only 1"),
    OP_ATTR_INT("training_mode", 0, "only 0"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "K", 1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "N", 1, INT32_MAX, diag));
    GQAC_TRY(op_check_block(node, "block_size", INT64_MAX, diag));
    GQAC_TRY(op_check_int(node, "quant_type", 0, 1, diag));
    if (ir_attr_int(node, "transB") != 1 || ir_attr_int(node, "training_mode") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "attributes transB and training_mode: only 1 and 0 are supported");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_type a = op_in_type(node, A);
    const ir_dim *dims[GQAC_MAX_RANK];
    int64_t k;
    GQAC_TRY(op_check_dtype(node, A, OP_FLOATS, diag));
    GQAC_TRY(op_check_dtype(node, B, OP_BIT(U8), diag));
    GQAC_TRY(op_check_same(node, A, ABSMAX, diag));
    if (a.rank < 0)
        return op_set_type(node, 0, a.dtype, -1, NULL, diag);
    if (a.rank == 0 || (ir_dim_is_const(a.dims[a.rank - 1], &k) && k != ir_attr_int(node, "K")))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the last axis of A is not K = %lld",
                (long long)ir_attr_int(node, "K"));
    for (int i = 0; i + 1 < a.rank; i++)
        dims[i] = a.dims[i];
    dims[a.rank - 1] = ir_dim_const(op_dims(node), ir_attr_int(node, "N"));
    return op_set_type(node, 0, a.dtype, a.rank, dims, diag);
}

typedef struct product {
    const gqac_tensor *a, *absmax;
    const uint8_t *codes;
    const float *table;
    gqac_tensor *y;
    int64_t k, n, block;
} product;

static const float *piece_of_a(const matmul_job *job, int64_t batch, int64_t first, int64_t count,
                               int64_t k, int64_t n_k, float *scratch, int64_t *ld) {
    const product *p = job->arg;
    (void)batch;
    *ld = n_k;
    for (int64_t m = 0; m < count; m++)
        op_get_f32s(p->a, (first + m) * p->k + k, n_k, scratch + m * n_k);
    return scratch;
}

static const float *piece_of_b(const matmul_job *job, int64_t batch, int64_t first, int64_t count,
                               int64_t k, int64_t n_k, float *scratch, int64_t *ld) {
    const product *p = job->arg;
    (void)batch;
    *ld = count;
    for (int64_t i = 0; i < count; i++) {
        float absmax = 0;
        for (int64_t j = 0; j < n_k; j++) {
            const int64_t at = (first + i) * p->k + k + j;
            if (j == 0 || at % p->block == 0)
                absmax = op_get_f32(p->absmax, at / p->block);
            scratch[j * count + i] = p->table[p->codes[at / 2] >> (at % 2 ? 0 : 4) & 15] * absmax;
        }
    }
    return scratch;
}

static void store(const matmul_job *job, int64_t batch, int64_t row, int64_t column, int64_t count,
                  float *values) {
    const product *p = job->arg;
    (void)batch;
    op_put_f32s(p->y, row * p->n + column, count, values);
}

static gqac_status eval(op_call *call) {
    const ir_node *node = call->node;
    int64_t dims[GQAC_MAX_RANK], size;
    GQAC_TRY(op_want_set(call, A, OP_FLOATS));
    GQAC_TRY(op_want(call, B, GQAC_U8));
    product p = {.a = call->in[A],
                 .codes = call->in[B]->data,
                 .table = tables[ir_attr_int(node, "quant_type") != 0],
                 .y = &call->out[0],
                 .k = ir_attr_int(node, "K"),
                 .n = ir_attr_int(node, "N"),
                 .block = ir_attr_int(node, "block_size")};
    GQAC_TRY(op_want(call, ABSMAX, p.a->dtype));
    p.absmax = call->in[ABSMAX];
    if (p.a->rank < 1 || p.a->dims[p.a->rank - 1] != p.k)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "the last axis of A is not K = %lld",
                (long long)p.k);
    if (!gqac_mul_i64(p.n, p.k, &size) || gqac_tensor_count(call->in[B]) != (size + 1) / 2 ||
        gqac_tensor_count(p.absmax) != (size - 1) / p.block + 1)
        OP_FAIL(
            node, call->diag, GQAC_INVALID_INPUT,
            "B has %lld bytes and absmax %lld elements, which do not fit a weight of %lld x %lld",
            (long long)gqac_tensor_count(call->in[B]), (long long)gqac_tensor_count(p.absmax),
            (long long)p.n, (long long)p.k);
    for (int i = 0; i < p.a->rank; i++)
        dims[i] = i + 1 < p.a->rank ? p.a->dims[i] : p.n;
    GQAC_TRY(op_output(call, 0, p.a->dtype, p.a->rank, dims));
    const matmul_job job = {.batches = 1,
                            .rows = op_product(p.a->dims, 0, p.a->rank - 1),
                            .columns = p.n,
                            .depth = p.k,
                            .a = piece_of_a,
                            .b = piece_of_b,
                            .store = store,
                            .arg = &p};
    return matmul_run(call, &job);
}

const gqac_op gqac_op_matmul_bnb4 = {
    .schema = {.name = "MatMulBnb4",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "A B absmax",
               .outputs = "Y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "Y [..,N] = A [..,K] times the transposed B in FP4 or NF4"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
