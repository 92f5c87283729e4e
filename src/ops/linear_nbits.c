/* linear_nbits: com.microsoft.MatMulNBits on weights that a target has packed.
 *
 *   y [..,n] = x [..,k] * w^T (+ bias [n]),  w[n][k] = (code - zero point) * scale
 *
 * codes u8 [panels,words,256], scales [panels,blocks,64], zero_points u8 or float
 * [panels,blocks,64]: ops/nbits.h describes their layout. Without zero_points they are 2^(bits-1).
 * Results are those of MatMulNBits (matmul_nbits.c), to which it expands. */
#include "ops/build.h"
#include "ops/nbits.h"

#include <string.h>

#include "base/arena.h"
#include "numerics/convert.h"
#include "ops/linear.h"
#include "ops/shared.h"

enum { X, CODES, SCALES, ZERO_POINTS, BIAS };

static const ir_attr_spec attrs[] = {
    {"k", IR_ATTR_INT, .required = true, .doc = "columns of x"},
    {"n", IR_ATTR_INT, .required = true, .doc = "columns of y"},
    {"bits", IR_ATTR_INT, .required = true, .doc = "bits of a code: 2, 4 or 8"},
    {"block_size", IR_ATTR_INT, .required = true, .doc = "a power of two, 16 to 512"},
    OP_ATTR_INT("accuracy_level", 0, "4: int8 activations; else fp32"),
    OP_ATTR_INT("bf16", 0, "1: products of bf16 factors, where activations are not int8"),
    {.name = NULL},
};

static nbits_shape shape_of(const ir_node *node) {
    return nbits_shape_of(ir_attr_int(node, "k"), ir_attr_int(node, "n"),
                          (int)ir_attr_int(node, "bits"), ir_attr_int(node, "block_size"));
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const int64_t bits = ir_attr_int(node, "bits");
    GQAC_TRY(op_check_int(node, "k", 1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "n", 1, INT32_MAX, diag));
    if (bits != 2 && bits != 4 && bits != 8)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute bits = %lld: must be 2, 4 or 8",
                (long long)bits);
    GQAC_TRY(op_check_block(node, "block_size", NBITS_MAX_BLOCK, diag));
    GQAC_TRY(op_check_int(node, "bf16", 0, 1, diag));
    return op_check_int(node, "accuracy_level", 0, 4, diag);
}

/* Packed operands are constants, so their types are known. */
static gqac_status check_packed(const ir_node *node, int input, unsigned set, int64_t panels,
                                int64_t rows, int64_t width, gqac_diag *diag) {
    const int64_t wanted[3] = {panels, rows, width};
    GQAC_TRY(op_check_dtype(node, input, set, diag));
    bool fits = op_in_type(node, input).rank == 3;
    for (int i = 0; fits && i < 3; i++) {
        int64_t dim = 0;
        fits = ir_dim_is_const(op_in_dim(node, input, i), &dim) && dim == wanted[i];
    }
    if (!fits)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input %d is not [%lld,%lld,%lld]", input,
                (long long)panels, (long long)rows, (long long)width);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const nbits_shape s = shape_of(node);
    GQAC_TRY(op_check_dtype(node, X, OP_FLOATS, diag));
    GQAC_TRY(check_packed(node, CODES, OP_BIT(U8), s.panels, s.words, NBITS_WORD_BYTES, diag));
    GQAC_TRY(check_packed(node, SCALES, OP_FLOATS, s.panels, s.blocks, NBITS_COLUMNS, diag));
    if (ir_node_input(node, ZERO_POINTS))
        GQAC_TRY(check_packed(node, ZERO_POINTS, OP_FLOATS | OP_BIT(U8), s.panels, s.blocks,
                              NBITS_COLUMNS, diag));
    if (ir_node_input(node, BIAS))
        GQAC_TRY(op_check_dtype(node, BIAS, OP_FLOATS, diag));
    const ir_type x = op_in_type(node, X);
    int64_t k;
    if (x.rank < 0)
        return op_set_type(node, 0, x.dtype, -1, NULL, diag);
    if (x.rank == 0 || (ir_dim_is_const(x.dims[x.rank - 1], &k) && k != s.k))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the last axis of x is not k = %lld",
                (long long)s.k);
    const ir_dim *dims[GQAC_MAX_RANK];
    for (int i = 0; i + 1 < x.rank; i++)
        dims[i] = x.dims[i];
    dims[x.rank - 1] = ir_dim_const(op_dims(node), s.n);
    return op_set_type(node, 0, x.dtype, x.rank, dims, diag);
}

/* ---- expand: the constants as MatMulNBits has them ------------------------- */

static ir_value *unpack_codes(ir_builder *b, const nbits_shape *s, const gqac_tensor *packed) {
    const int64_t dims[3] = {s->n, s->blocks, s->block * s->bits / 8};
    void *data;
    ir_value *value = op_build_constant(b, b->graph, "codes", GQAC_U8, 3, dims, &data);
    for (int64_t n = 0; value && n < s->n; n++)
        for (int64_t w = 0; w < s->words; w++) {
            const int64_t panel = n / NBITS_COLUMNS, column = n % NBITS_COLUMNS;
            const uint8_t *from =
                (const uint8_t *)packed->data +
                ((panel * s->words + w) * NBITS_COLUMNS + column) * (int64_t)sizeof(uint32_t);
            uint32_t word;
            memcpy(&word, from, sizeof word);
            word = nbits_unpack_word(word, s->bits);
            memcpy((uint8_t *)data + (n * s->words + w) * (int64_t)sizeof word, &word, sizeof word);
        }
    return value;
}

/* [panels,blocks,64] as [n,blocks]. */
static ir_value *unpack_rows(ir_builder *b, const nbits_shape *s, const char *name,
                             const gqac_tensor *packed) {
    const int64_t dims[2] = {s->n, s->blocks};
    const size_t width = op_width(packed->dtype);
    void *data;
    ir_value *value = op_build_constant(b, b->graph, name, packed->dtype, 2, dims, &data);
    for (int64_t n = 0; value && n < s->n; n++)
        for (int64_t block = 0; block < s->blocks; block++) {
            const int64_t at = (n / NBITS_COLUMNS * s->blocks + block) * NBITS_COLUMNS;
            memcpy((uint8_t *)data + (size_t)(n * s->blocks + block) * width,
                   (const uint8_t *)packed->data + (size_t)(at + n % NBITS_COLUMNS) * width, width);
        }
    return value;
}

/* Zero points packed to the width of a code, low bits first. */
static ir_value *unpack_zeros(ir_builder *b, const nbits_shape *s, const gqac_tensor *packed) {
    if (packed->dtype != GQAC_U8)
        return unpack_rows(b, s, "zero_points", packed);
    const int64_t dims[2] = {s->n, (s->blocks * s->bits + 7) / 8};
    const unsigned most = (1u << s->bits) - 1;
    void *data;
    ir_value *value = op_build_constant(b, b->graph, "zero_points", GQAC_U8, 2, dims, &data);
    if (value)
        memset(data, 0, (size_t)(dims[0] * dims[1]));
    for (int64_t n = 0; value && n < s->n; n++)
        for (int64_t block = 0; block < s->blocks; block++) {
            const int64_t at = (n / NBITS_COLUMNS * s->blocks + block) * NBITS_COLUMNS;
            const unsigned zero = ((const uint8_t *)packed->data)[at + n % NBITS_COLUMNS];
            uint8_t *byte = (uint8_t *)data + n * dims[1] + block * s->bits / 8;
            *byte = (uint8_t)(*byte | (zero & most) << block * s->bits % 8);
        }
    return value;
}

static const gqac_tensor *packed_constant(ir_builder *b, const ir_node *node, int input) {
    const ir_value *value = ir_node_input(node, input);
    if (value && value->constant && value->constant->data)
        return value->constant;
    op_refuse(b, node, "input %d is not a constant with data", input);
    return NULL;
}

/* (code - zero point) * scale of one element. */
static float weight_at(const nbits_shape *s, const gqac_tensor *const packed[3], int64_t n,
                       int64_t k) {
    const int per = 32 / s->bits;
    const int64_t panel = n / NBITS_COLUMNS, column = n % NBITS_COLUMNS;
    const int64_t at = (panel * s->blocks + k / s->block) * NBITS_COLUMNS + column;
    uint32_t word;
    memcpy(&word,
           (const uint8_t *)packed[0]->data +
               ((panel * s->words + k / per) * NBITS_COLUMNS + column) * (int64_t)sizeof word,
           sizeof word);
    const unsigned mask = (1u << s->bits) - 1;
    const unsigned code = nbits_unpack_word(word, s->bits) >> k % per * s->bits & mask;
    float zero = (float)(1 << (s->bits - 1));
    if (packed[2])
        zero = packed[2]->dtype == GQAC_U8 ? (float)(((const uint8_t *)packed[2]->data)[at] & mask)
                                           : op_get_f32(packed[2], at);
    return ((float)code - zero) * op_get_f32(packed[1], at);
}

/* The same on weights rounded to bf16 factors: an op that is expanded again. */
static ir_value *as_linear_bf16(ir_builder *b, const ir_node *node, const nbits_shape *s) {
    const gqac_tensor *const packed[3] = {
        packed_constant(b, node, CODES), packed_constant(b, node, SCALES),
        ir_node_input(node, ZERO_POINTS) ? packed_constant(b, node, ZERO_POINTS) : NULL};
    const int64_t pairs = linear_pairs(s->k), dims[3] = {s->panels, pairs, LINEAR_PAIRS};
    void *data;
    ir_value *w = op_build_constant(b, b->graph, "factors", GQAC_BF16, 3, dims, &data);
    if (w)
        memset(data, 0, (size_t)(dims[0] * dims[1] * dims[2]) * sizeof(uint16_t));
    for (int64_t n = 0; w && n < s->n; n++)
        for (int64_t k = 0; k < s->k; k++) {
            const int64_t line = n / LINEAR_PANEL * pairs + k / 2;
            ((uint16_t *)data)[line * LINEAR_PAIRS + n % LINEAR_PANEL * 2 + k % 2] =
                gqn_bf16_factor(weight_at(s, packed, n, k));
        }
    return OP_BUILD(b, "linear_bf16", .in = {ir_node_input(node, X), w, ir_node_input(node, BIAS)},
                    .ints = {{"n", s->n}, {"k", s->k}});
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    const nbits_shape s = shape_of(node);
    const gqac_tensor *codes = packed_constant(b, node, CODES);
    const gqac_tensor *scales = packed_constant(b, node, SCALES);
    const gqac_tensor *zeros =
        ir_node_input(node, ZERO_POINTS) ? packed_constant(b, node, ZERO_POINTS) : NULL;
    if (b->status != GQAC_OK)
        return;
    const bool float_zero = zeros && zeros->dtype != GQAC_U8;
    if (ir_attr_int(node, "bf16") &&
        !nbits_int8(ir_attr_int(node, "accuracy_level"), s.bits, s.block, float_zero)) {
        results[0] = as_linear_bf16(b, node, &s);
        return;
    }
    ir_value *code = unpack_codes(b, &s, codes), *scale = unpack_rows(b, &s, "scales", scales);
    ir_value *zero = zeros ? unpack_zeros(b, &s, zeros) : NULL;
    results[0] =
        OP_BUILD(b, "com.microsoft.MatMulNBits",
                 .in = {ir_node_input(node, X), code, scale, zero, NULL, ir_node_input(node, BIAS)},
                 .ints = {{"K", s.k}, {"N", s.n}, {"bits", s.bits}, {"block_size", s.block}},
                 .of = node, .same = {"accuracy_level"});
}

static void make_exact(ir_node *node) {
    if (ir_attr_int(node, "accuracy_level") == 4)
        ir_attr_set_int(node, "accuracy_level", 0);
}

const gqac_op gqac_op_linear_nbits = {
    .schema = {.name = "linear_nbits",
               .domain = "gqac",
               .since = 1,
               .inputs = "x codes scales zero_points? bias?",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "com.microsoft.MatMulNBits on packed weights, panels of 64 columns"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .standard = op_expand_standard,
    .make_exact = make_exact,
};
