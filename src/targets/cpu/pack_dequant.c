/* MatMul by a weight that DequantizeLinear computes from constant codes of 4 or 8 bits becomes
 * MatMulNBits with fp32 products: the weights stay quantised, and every result is the same.
 *
 * In both forms a weight is (code - zero point) * scale in fp32, and the product is computed in
 * fp32. That holds only if DequantizeLinear returns f32 (16 bits would round the weight), and if
 * each scale is for a column, or for a block of a column whose length is divisible by a power of
 * two of at least 16. Signed codes become unsigned ones, shifted by 2^(bits-1). There may be a
 * Transpose between the weight and the MatMul. */
#include <string.h>

#include "base/arena.h"
#include "ops/build.h"
#include "ops/nbits.h"
#include "ops/quantise.h"
#include "targets/cpu/pack.h"

enum { LEAST_UNBLOCKED = 32 }; /* shortest block if one scale is for a whole column */

typedef struct weight {
    const gqac_tensor *codes, *scale, *zero; /* zero: NULL when absent */
    quant_layout q;
    int axis;        /* axis of the scales */
    bool transposed; /* codes are [n,k] */
    int64_t k, n, block, blocks;
    int bits, centre; /* centre: the number that is added to a code */
} weight;

/* The greatest power of two that divides x, at most NBITS_MAX_BLOCK. */
static int64_t power_in(int64_t x) {
    const int64_t power = x & -x;
    return power < NBITS_MAX_BLOCK ? power : NBITS_MAX_BLOCK;
}

static const ir_node *find_dequantize(const ir_node *matmul, bool *transposed) {
    *transposed = false;
    const ir_value *value = cpu_pack_untransposed(ir_node_input(matmul, 1), transposed);
    const ir_node *def = value ? value->def : NULL;
    return def && op_is(def, "", "DequantizeLinear") && value->type.dtype == GQAC_F32 ? def : NULL;
}

/* Divides k into blocks with one scale for each column. False: this is impossible, or most codes
 * would be padding (a k of 1 would take 32 times the memory). */
static bool find_blocks(weight *w) {
    const int k_axis = w->transposed ? 1 : 0;
    if (w->q.block) {
        if (w->axis != k_axis)
            return false;
        w->block = power_in(w->q.block);
    } else {
        if (w->q.by_axis && w->axis == k_axis)
            return false;
        w->block = power_in(w->k) < LEAST_UNBLOCKED ? LEAST_UNBLOCKED : power_in(w->k);
    }
    while (w->block > LEAST_UNBLOCKED && w->block / 2 >= w->k) /* one block holds all of k */
        w->block /= 2;
    w->blocks = (w->k + w->block - 1) / w->block;
    return w->block >= NBITS_MIN_BLOCK && w->blocks * w->block <= 2 * w->k;
}

static bool read_weight(const ir_node *matmul, weight *w) {
    gqac_diag ignored = {0};
    *w = (weight){0};
    const ir_node *node = find_dequantize(matmul, &w->transposed);
    if (!node)
        return false;
    w->codes = cpu_pack_constant(ir_node_input(node, QUANT_X));
    w->scale = cpu_pack_constant(ir_node_input(node, QUANT_SCALE));
    w->zero = cpu_pack_constant(ir_node_input(node, QUANT_ZERO));
    if (!w->codes || !w->scale || (ir_node_input(node, QUANT_ZERO) && !w->zero))
        return false;
    const gqac_dtype dtype = w->codes->dtype;
    if (w->codes->rank != 2 || !OP_IN(OP_NIBBLES | OP_BIT(I8) | OP_BIT(U8), dtype) ||
        !OP_IN(OP_FLOATS, w->scale->dtype) || (w->zero && w->zero->dtype != dtype) ||
        quant_layout_of(node, w->codes, w->scale, w->zero, &w->q, &ignored) != GQAC_OK)
        return false;
    w->axis = ir_attr_int(node, "axis") % 2 != 0; /* there are two axes; it may be negative */
    w->k = w->codes->dims[w->transposed ? 1 : 0];
    w->n = w->codes->dims[w->transposed ? 0 : 1];
    w->bits = gqac_dtype_bits(dtype);
    w->centre = OP_IN(OP_BIT(I4) | OP_BIT(I8), dtype) ? 1 << (w->bits - 1) : 0;
    return w->k > 0 && w->n > 0 && w->k <= INT32_MAX && w->n <= INT32_MAX && find_blocks(w);
}

/* Index of the scale of column n in block b. */
static int64_t scale_at(const weight *w, int64_t n, int64_t b) {
    const int64_t row = w->transposed ? n : b * w->block, column = w->transposed ? b * w->block : n;
    return w->axis == 0 ? quant_scale_at(&w->q, 0, row, column)
                        : quant_scale_at(&w->q, row, column, 0);
}

static ir_value *add_constant(ir_builder *b, const char *name, const gqac_tensor *like,
                              uint8_t **data) {
    void *bytes;
    ir_value *value =
        op_build_constant(b, b->graph, name, like->dtype, like->rank, like->dims, &bytes);
    *data = bytes;
    if (value)
        memset(bytes, 0, gqac_tensor_bytes(value->constant));
    return value;
}

/* Stores code i of a row of codes; the first code is in the low bits. */
static void put_code(uint8_t *row, int64_t i, int bits, int64_t code) {
    uint8_t *byte = row + i * bits / 8;
    *byte = (uint8_t)(*byte | (unsigned)code << i * bits % 8);
}

static ir_value *make_codes(ir_builder *b, const weight *w) {
    const gqac_tensor like = {
        .dtype = GQAC_U8, .rank = 3, .dims = {w->n, w->blocks, w->block * w->bits / 8}};
    uint8_t *data;
    ir_value *value = add_constant(b, "codes", &like, &data);
    const int64_t row = like.dims[1] * like.dims[2];
    const int64_t n_step = w->transposed ? w->k : 1, k_step = w->transposed ? 1 : w->n;
    for (int64_t n = 0; value && n < w->n; n++)
        for (int64_t k = 0; k < w->k; k++)
            put_code(data + n * row, k, w->bits,
                     op_get_i64(w->codes, n * n_step + k * k_step) + w->centre);
    return value;
}

static ir_value *make_scales(ir_builder *b, const weight *w) {
    const gqac_tensor like = {.dtype = w->scale->dtype, .rank = 2, .dims = {w->n, w->blocks}};
    const size_t width = op_width(like.dtype);
    uint8_t *data;
    ir_value *value = add_constant(b, "scales", &like, &data);
    for (int64_t n = 0; value && n < w->n; n++)
        for (int64_t i = 0; i < w->blocks; i++)
            memcpy(data + (size_t)(n * w->blocks + i) * width,
                   (const char *)w->scale->data + (size_t)scale_at(w, n, i) * width, width);
    return value;
}

/* The zero points; NULL: they equal the default of MatMulNBits. */
static ir_value *make_zeros(ir_builder *b, const weight *w) {
    const int64_t row = (w->blocks * w->bits + 7) / 8;
    const gqac_tensor like = {.dtype = GQAC_U8, .rank = 2, .dims = {w->n, row}};
    uint8_t *data;
    if (!w->zero && w->centre)
        return NULL;
    ir_value *value = add_constant(b, "zero_points", &like, &data);
    for (int64_t n = 0; value && w->zero && n < w->n; n++)
        for (int64_t i = 0; i < w->blocks; i++)
            put_code(data + n * row, i, w->bits,
                     op_get_i64(w->zero, scale_at(w, n, i)) + w->centre);
    return value;
}

gqac_status cpu_pack_dequantised(ir_node *node, const op_options *options, gqac_poll *poll,
                                 bool *packed, gqac_diag *diag) {
    weight w;
    const ir_type a = op_in_type(node, 0);
    if (a.dtype != GQAC_F32 || a.rank < 1 || !read_weight(node, &w))
        return GQAC_OK;
    ir_builder b = {.graph = node->graph, .before = node, .diag = diag};
    ir_value *codes = make_codes(&b, &w), *scales = make_scales(&b, &w);
    ir_value *y =
        OP_BUILD(&b, "com.microsoft.MatMulNBits",
                 .in = {ir_node_input(node, 0), codes, scales, make_zeros(&b, &w)},
                 .ints = {{"K", w.k}, {"N", w.n}, {"bits", w.bits}, {"block_size", w.block}});
    GQAC_TRY(cpu_pack_replace(&b, node, node->outputs[0], y));
    *packed = true;
    bool again;
    return cpu_pack_nbits(y->def, options, poll, &again, diag);
}
