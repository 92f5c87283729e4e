/* com.microsoft.MatMulNBits: Y [.., N] = A [.., K] * w^T (+ bias), w[n][k] = (code - zp) * scale
 * with one scale and zero point for each block of block_size k. Codes are packed low bits first in
 * B [N, blocks, block_size * bits / 8]; zero points likewise, in rows [blocks]; without these zp is
 * 2^(bits-1). With g_idx [K], scale and zero point of k are those of block g_idx[k]; the codes keep
 * their places.
 *
 * accuracy_level other than 4: w is computed in fp32 and the product is MatMul's.
 * accuracy_level 4: the rows of A become int8, one scale for each (row, block):
 *   amax = max |a|, sa = amax / 127, qa = round_half_even(a * (127 / amax)), 0 when amax is 0
 *   y = sum over blocks of float(sum of qa * (code - zp)) * (sa * scale)
 * with exact integer sums; blocks ascending by fma, in pieces of 512 k that are added ascending. A
 * block with NaN or infinity has the scale NaN. As in ONNX Runtime, level 4 does not apply to float
 * zero points, to g_idx, nor to 2-bit codes in blocks of 16. */
#include "ops/matmul.h"

#include <string.h>

#include "base/check.h"
#include "numerics/convert.h"
#include "ops/kernel.h"
#include "ops/nbits.h"

enum { A, B, SCALES, ZERO_POINTS, G_IDX, BIAS, MAX_BLOCK = 4096 };

static const ir_attr_spec attrs[] = {
    {"K", IR_ATTR_INT, .required = true, .doc = "columns of A"},
    {"N", IR_ATTR_INT, .required = true, .doc = "columns of Y"},
    OP_ATTR_INT("bits", 4, "bits of a code: 2, 4 or 8"),
    {"block_size", IR_ATTR_INT, .required = true, .doc = "a power of two, at least 16"},
    OP_ATTR_INT("accuracy_level", 0, "4: int8 activations; else fp32"),
    OP_ATTR_INT("weight_prepacked", 0, "only 0"),
    {.name = NULL},
};

/* Constants of the file must have as many elements as the attributes imply. */
static gqac_status check_constants(const ir_node *node, gqac_diag *diag) {
    const int64_t n = ir_attr_int(node, "N"), bits = ir_attr_int(node, "bits");
    const int64_t block = ir_attr_int(node, "block_size");
    const int64_t blocks = (ir_attr_int(node, "K") + block - 1) / block;
    const ir_value *zero = ir_node_input(node, ZERO_POINTS);
    const bool packed = zero && zero->constant && zero->constant->dtype == GQAC_U8;
    const int64_t wanted[] = {[B] = n * blocks * (block * bits / 8),
                              [SCALES] = n * blocks,
                              [ZERO_POINTS] = n * (packed ? (blocks * bits + 7) / 8 : blocks),
                              [BIAS] = n};
    static const char *const names[] = {
        [B] = "B", [SCALES] = "scales", [ZERO_POINTS] = "zero_points", [BIAS] = "bias"};
    for (int i = B; i <= BIAS; i++) {
        const ir_value *value = names[i] ? ir_node_input(node, i) : NULL;
        if (value && value->constant && gqac_tensor_count(value->constant) != wanted[i])
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%s has %lld elements, expected %lld", names[i],
                    (long long)gqac_tensor_count(value->constant), (long long)wanted[i]);
    }
    return GQAC_OK;
}

/* g_idx has an element for each column of A, or also for the padding of the last block. */
static gqac_status check_groups(const ir_node *node, const gqac_tensor *groups, int64_t blocks,
                                gqac_status wrong, gqac_diag *diag) {
    const int64_t n = gqac_tensor_count(groups), k = ir_attr_int(node, "K");
    const int32_t *group = groups->data;
    if (groups->dtype != GQAC_I32)
        OP_FAIL(node, diag, wrong, "g_idx is %s, not i32", gqac_dtype_name(groups->dtype));
    if (n != k && n != blocks * ir_attr_int(node, "block_size"))
        OP_FAIL(node, diag, wrong, "g_idx has %lld elements, but K is %lld", (long long)n,
                (long long)k);
    for (int64_t i = 0; i < k; i++)
        if (group[i] < 0 || group[i] >= blocks)
            OP_FAIL(node, diag, wrong, "g_idx[%lld] is %d, but the weights have %lld blocks",
                    (long long)i, group[i], (long long)blocks);
    return GQAC_OK;
}

/* Drops a g_idx by which each column belongs to its own block; products stay those of fp32. */
static gqac_status upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    const ir_value *value = ir_node_input(node, G_IDX);
    const gqac_tensor *groups = value ? value->constant : NULL;
    const int64_t k = ir_attr_int(node, "K"), block = ir_attr_int(node, "block_size");
    (void)b;
    (void)opset;
    (void)raw;
    if (!groups || groups->dtype != GQAC_I32 || block < 1 || gqac_tensor_count(groups) < k)
        return GQAC_OK;
    for (int64_t i = 0; i < k; i++)
        if (((const int32_t *)groups->data)[i] != i / block)
            return GQAC_OK;
    ir_node_set_input(node, G_IDX, NULL);
    ir_attr_set_int(node, "accuracy_level", 0);
    return GQAC_OK;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    int64_t bits = ir_attr_int(node, "bits"), block = ir_attr_int(node, "block_size");
    GQAC_TRY(op_check_int(node, "K", 1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "N", 1, INT32_MAX, diag));
    if (bits != 2 && bits != 4 && bits != 8)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute bits = %lld: must be 2, 4 or 8",
                (long long)bits);
    GQAC_TRY(op_check_block(node, "block_size", INT64_MAX, diag));
    if (block > MAX_BLOCK)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute block_size = %lld: must be at most %d",
                (long long)block, MAX_BLOCK);
    GQAC_TRY(op_check_int(node, "accuracy_level", 0, 4, diag));
    if (ir_attr_int(node, "weight_prepacked") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "attribute weight_prepacked = %lld: only 0 is supported",
                (long long)ir_attr_int(node, "weight_prepacked"));
    GQAC_TRY(check_constants(node, diag));
    const ir_value *groups = ir_node_input(node, G_IDX);
    const int64_t blocks = (ir_attr_int(node, "K") + block - 1) / block;
    return groups && groups->constant
               ? check_groups(node, groups->constant, blocks, GQAC_INVALID_MODEL, diag)
               : GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, A, OP_FLOATS, diag));
    GQAC_TRY(op_check_dtype(node, B, OP_BIT(U8), diag));
    GQAC_TRY(op_check_dtype(node, SCALES, OP_FLOATS, diag));
    ir_type a = op_in_type(node, A);
    int64_t k;
    if (a.rank < 0)
        return op_set_type(node, 0, a.dtype, -1, NULL, diag);
    if (a.rank == 0 || (ir_dim_is_const(a.dims[a.rank - 1], &k) && k != ir_attr_int(node, "K")))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the last axis of A is not K = %lld",
                (long long)ir_attr_int(node, "K"));
    const ir_dim *dims[GQAC_MAX_RANK];
    for (int i = 0; i + 1 < a.rank; i++)
        dims[i] = a.dims[i];
    dims[a.rank - 1] = ir_dim_const(op_dims(node), ir_attr_int(node, "N"));
    return op_set_type(node, 0, a.dtype, a.rank, dims, diag);
}

typedef struct nbits {
    const gqac_tensor *a, *scales, *zero, *bias;
    const uint8_t *codes;
    const int32_t *groups; /* the block of each k; NULL: its own */
    gqac_tensor *y;
    int64_t rows, k, n, block, blocks, code_bytes, zero_bytes;
    int bits;
    int8_t *qa;    /* level 4: codes of A, [rows][blocks * block] */
    float *qscale; /* [rows][blocks] */
    op_scratch scratch;
} nbits;

static int code_at(const uint8_t *bytes, int64_t index, int bits) {
    int64_t bit = index * bits;
    return bytes[bit >> 3] >> (bit & 7) & ((1 << bits) - 1);
}

static bool packed_zero(const nbits *q) {
    return q->zero && q->zero->dtype == GQAC_U8;
}

static float zero_of(const nbits *q, int64_t n, int64_t block) {
    if (!q->zero)
        return (float)(1 << (q->bits - 1));
    if (packed_zero(q))
        return (float)code_at((const uint8_t *)q->zero->data + n * q->zero_bytes, block, q->bits);
    return op_get_f32(q->zero, n * q->blocks + block);
}

/* ---- fp32: weights a piece at a time, the product of MatMul -------------- */

static const float *piece_of_a(const matmul_job *job, int64_t batch, int64_t first, int64_t count,
                               int64_t k, int64_t n_k, float *scratch, int64_t *ld) {
    const nbits *q = job->arg;
    (void)batch;
    if (q->a->dtype == GQAC_F32) {
        *ld = q->k;
        return (const float *)q->a->data + first * q->k + k;
    }
    *ld = n_k;
    for (int64_t m = 0; m < count; m++)
        op_get_f32s(q->a, (first + m) * q->k + k, n_k, scratch + m * n_k);
    return scratch;
}

/* scratch[k][n] = (code - zp) * scale */
static const float *piece_of_b(const matmul_job *job, int64_t batch, int64_t first, int64_t count,
                               int64_t k, int64_t n_k, float *scratch, int64_t *ld) {
    const nbits *q = job->arg;
    (void)batch;
    *ld = count;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *codes = q->codes + (first + i) * q->blocks * q->code_bytes;
        float scale = 0, zero = 0;
        for (int64_t j = 0; j < n_k; j++) {
            int64_t block = q->groups ? q->groups[k + j] : (k + j) / q->block;
            if (j == 0 || (k + j) % q->block == 0 || q->groups) {
                scale = op_get_f32(q->scales, (first + i) * q->blocks + block);
                zero = zero_of(q, first + i, block);
            }
            scratch[j * count + i] = ((float)code_at(codes, k + j, q->bits) - zero) * scale;
        }
    }
    return scratch;
}

static void store_row(const nbits *q, int64_t row, int64_t column, int64_t count, float *values) {
    for (int64_t i = 0; q->bias && i < count; i++)
        values[i] = op_one_nan(values[i] + op_get_f32(q->bias, column + i));
    op_put_f32s(q->y, row * q->n + column, count, values);
}

static void store(const matmul_job *job, int64_t batch, int64_t row, int64_t column, int64_t count,
                  float *values) {
    (void)batch;
    store_row(job->arg, row, column, count, values);
}

/* ---- level 4: int8 activations ------------------------------------------- */

static void quantise_block(const float *a, int64_t n, int64_t block, int8_t *qa, float *scale) {
    float amax = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        float magnitude = gqn_as_f32(gqn_as_u32(a[i]) & 0x7fffffffu);
        amax = magnitude > amax ? magnitude : amax;
        finite = finite && gqn_as_u32(magnitude) < GQN_INF_BITS;
    }
    memset(qa, 0, (size_t)block);
    *scale = finite ? amax / 127.0f : gqn_as_f32(GQN_NAN_BITS);
    if (!finite || amax == 0)
        return;
    float inverse = 127.0f / amax;
    for (int64_t i = 0; i < n; i++)
        qa[i] = (int8_t)gqn_quantise(a[i] * inverse, -127, 127);
}

static void quantise_rows(void *arg, size_t begin, size_t end, int worker) {
    const nbits *q = arg;
    float *row = (float *)(void *)(q->scratch.base + (size_t)worker * q->scratch.stride);
    for (size_t m = begin; m < end; m++) {
        op_get_f32s(q->a, (int64_t)m * q->k, q->k, row);
        for (int64_t b = 0; b < q->blocks; b++) {
            int64_t at = b * q->block, n = q->k - at < q->block ? q->k - at : q->block;
            int64_t out = (int64_t)m * q->blocks + b;
            quantise_block(row + at, n, q->block, q->qa + out * q->block, q->qscale + out);
        }
    }
}

/* Exact in any order: block <= 4096 products below 2^15. */
OP_BODY void dot_body(const int8_t *a, const int16_t *w, int64_t n, int32_t *out) {
    int32_t lanes[16] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i += 16)
        for (int l = 0; l < 16; l++)
            lanes[l] += a[i + l] * w[i + l];
    for (int l = 0; l < 16; l++)
        sum += lanes[l];
    *out = sum;
}
OP_KERNEL(dot, (const int8_t *a, const int16_t *w, int64_t n, int32_t *out), (a, w, n, out))

/* Items are columns n; each owns its elements of all rows. */
static void run_columns(void *arg, size_t begin, size_t end, int worker) {
    const nbits *q = arg;
    float *total = (float *)(void *)(q->scratch.base + (size_t)worker * q->scratch.stride);
    float *piece = total + q->rows;
    for (size_t item = begin; item < end; item++) {
        int64_t n = (int64_t)item;
        const uint8_t *codes = q->codes + n * q->blocks * q->code_bytes;
        for (int64_t m = 0; m < q->rows; m++)
            total[m] = piece[m] = 0;
        for (int64_t b = 0; b < q->blocks; b++) {
            int16_t w[MAX_BLOCK];
            int zero = (int)zero_of(q, n, b);
            float scale = op_get_f32(q->scales, n * q->blocks + b);
            bool starts = b * q->block % GQAC_K_PIECE == 0;
            for (int64_t i = 0; i < q->block; i++)
                w[i] = (int16_t)(code_at(codes, b * q->block + i, q->bits) - zero);
            for (int64_t m = 0; m < q->rows; m++) {
                int64_t at = m * q->blocks + b;
                int32_t sum;
                if (starts) {
                    total[m] = b <= GQAC_K_PIECE / q->block ? piece[m] : total[m] + piece[m];
                    piece[m] = 0;
                }
                dot(q->qa + at * q->block, w, q->block, &sum);
                piece[m] = __builtin_fmaf((float)sum, q->qscale[at] * scale, piece[m]);
            }
        }
        for (int64_t m = 0; m < q->rows; m++) {
            float y = q->k <= GQAC_K_PIECE ? piece[m] : total[m] + piece[m];
            y = op_one_nan(y);
            store_row(q, m, n, 1, &y);
        }
    }
}

static gqac_status run_int8(op_call *call, nbits *q) {
    size_t elements, blocks;
    int64_t floats = q->k > 2 * q->rows ? q->k : 2 * q->rows;
    if (!gqac_mul_size((size_t)q->rows, (size_t)(q->blocks * q->block), &elements) ||
        !gqac_mul_size((size_t)q->rows * sizeof(float), (size_t)q->blocks, &blocks))
        return gqac_diag_oom(call->diag, "quantised activations");
    op_scratch qa = {0}, qscale = {0};
    gqac_status status = op_scratch_open_one(call, elements, 1, &qa);
    if (status == GQAC_OK)
        status = op_scratch_open_one(call, blocks, 1, &qscale);
    if (status == GQAC_OK)
        status = op_scratch_open(call, (size_t)floats, sizeof(float), &q->scratch);
    if (status == GQAC_OK) {
        q->qa = (void *)qa.base;
        q->qscale = (void *)qscale.base;
        op_parallel(call, q->rows, 1 + 2 * q->k, quantise_rows, q);
        op_parallel(call, q->n, 1 + q->k * (1 + q->rows / 8), run_columns, q);
        op_scratch_close(&q->scratch);
    }
    op_scratch_close(&qa);
    op_scratch_close(&qscale);
    return status;
}

/* ---- eval ---------------------------------------------------------------- */

static gqac_status read_optional(op_call *call, nbits *q) {
    int n = call->node->n_inputs;
    q->zero = n > ZERO_POINTS ? call->in[ZERO_POINTS] : NULL;
    q->bias = n > BIAS ? call->in[BIAS] : NULL;
    if (n > G_IDX && call->in[G_IDX]) {
        GQAC_TRY(
            check_groups(call->node, call->in[G_IDX], q->blocks, GQAC_INVALID_INPUT, call->diag));
        q->groups = call->in[G_IDX]->data;
    }
    if (q->zero) {
        GQAC_TRY(op_want_set(call, ZERO_POINTS, OP_FLOATS | OP_BIT(U8)));
        int64_t wanted = q->n * (packed_zero(q) ? q->zero_bytes : q->blocks);
        if (gqac_tensor_count(q->zero) != wanted)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "zero_points has %lld elements, expected %lld",
                    (long long)gqac_tensor_count(q->zero), (long long)wanted);
    }
    if (q->bias) {
        GQAC_TRY(op_want_set(call, BIAS, OP_FLOATS));
        if (gqac_tensor_count(q->bias) != q->n)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "bias has %lld elements, but N is %lld", (long long)gqac_tensor_count(q->bias),
                    (long long)q->n);
    }
    return GQAC_OK;
}

static gqac_status read_inputs(op_call *call, nbits *q) {
    GQAC_TRY(op_want_set(call, A, OP_FLOATS));
    GQAC_TRY(op_want(call, B, GQAC_U8));
    GQAC_TRY(op_want_set(call, SCALES, OP_FLOATS));
    q->a = call->in[A];
    q->codes = call->in[B]->data;
    q->scales = call->in[SCALES];
    q->blocks = (q->k + q->block - 1) / q->block;
    q->code_bytes = q->block * q->bits / 8;
    q->zero_bytes = (q->blocks * q->bits + 7) / 8;
    if (q->a->rank < 1 || q->a->dims[q->a->rank - 1] != q->k)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "the last axis of A is not K = %lld",
                (long long)q->k);
    q->rows = op_product(q->a->dims, 0, q->a->rank - 1);
    if (gqac_tensor_count(call->in[B]) != q->n * q->blocks * q->code_bytes)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "B has %lld bytes, expected %lld x %lld x %lld",
                (long long)gqac_tensor_count(call->in[B]), (long long)q->n, (long long)q->blocks,
                (long long)q->code_bytes);
    if (gqac_tensor_count(q->scales) != q->n * q->blocks)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "scales has %lld elements, expected %lld", (long long)gqac_tensor_count(q->scales),
                (long long)(q->n * q->blocks));
    return read_optional(call, q);
}

static gqac_status eval(op_call *call) {
    nbits q = {.k = ir_attr_int(call->node, "K"),
               .n = ir_attr_int(call->node, "N"),
               .bits = (int)ir_attr_int(call->node, "bits"),
               .block = ir_attr_int(call->node, "block_size"),
               .y = &call->out[0]};
    GQAC_TRY(read_inputs(call, &q));
    int64_t dims[GQAC_MAX_RANK];
    for (int i = 0; i < q.a->rank; i++)
        dims[i] = i + 1 < q.a->rank ? q.a->dims[i] : q.n;
    GQAC_TRY(op_output(call, 0, q.a->dtype, q.a->rank, dims));
    if (q.rows == 0)
        return GQAC_OK;
    if (!q.groups && nbits_int8(ir_attr_int(call->node, "accuracy_level"), q.bits, q.block,
                                q.zero && !packed_zero(&q)))
        return run_int8(call, &q);
    matmul_job job = {.batches = 1,
                      .rows = q.rows,
                      .columns = q.n,
                      .depth = q.k,
                      .a = piece_of_a,
                      .b = piece_of_b,
                      .store = store,
                      .arg = &q};
    return matmul_run(call, &job);
}

static void make_exact(ir_node *node) {
    if (ir_attr_int(node, "accuracy_level") == 4)
        ir_attr_set_int(node, "accuracy_level", 0);
}

const gqac_op gqac_op_matmul_nbits = {
    .schema = {.name = "MatMulNBits",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "A B scales zero_points? g_idx? bias?",
               .outputs = "Y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "Y [..,N] = A [..,K] times the transposed block-quantised B, + bias"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
    .make_exact = make_exact,
    .upgrade = upgrade,
};
