/* How constant weights are stored for the kernels of products: in chunks of 128 bits, each with a
 * number of k of one column. Chunks of the same k are adjacent, so items that compute adjacent
 * columns read adjacent memory.
 *
 *   kind            k of a chunk
 *   f32             4
 *   f16, bf16       8
 *   8, 4, 2 bits    16, 32, 64: four words, lowest bits first
 *
 * There are `width` columns, a multiple of 8; those from n on, and k after the last, are not used.
 * Weights of codes are (code - zero) * scale; scales and zero points are [blocks][width], and
 * blocks have 1 << shift k, at least 16. `kind` and other const parameters are known constants once
 * a function is inlined. */

#define KIND_F32  32
#define KIND_F16  16
#define KIND_BF16 17

#define CHUNK_K(kind) ((kind) <= 8 ? 128 / (kind) : (kind) == KIND_F32 ? 4 : 8)

/* The same struct as product_shape in products.c. */
typedef struct product_shape {
    int m, k, n, width;
    int shift, blocks;
    int zero_step;  /* between the zero points of two blocks; 0 if all are equal */
    int teams;      /* teams of a group, if a kernel has teams */
    int columns;    /* columns of a group, as a power of two, if a kernel can have any number */
    int split;      /* each group computes one piece, and totals are [pieces][m][n] */
    int from;       /* the first row of the tiles, and of totals */
    int has_bias;
    int from_zero;  /* the first piece is added to +0, because a block is longer than a piece */
    int y_type;     /* of the result; with split, its parts are fp32 */
} product_shape;

/* The weights of a product, and the kernel parameters that they consist of. */
typedef struct product_weights {
    __global const uint4 *data;           /* chunks, or factors (tensor.cl) */
    __global const float *scales, *zeros; /* of codes */
} product_weights;
#define WEIGHTS                                                                                    \
    __global const uint4 *weights, __global const float *scales, __global const float *zeros

GQN_FN product_weights weights_of(WEIGHTS) {
    product_weights w;
    w.data = weights;
    w.scales = scales;
    w.zeros = zeros;
    return w;
}

/* Code `i` of a word as a float. */
GQN_FN float code_value(uint word, const int i, const int bits) {
    return gqn_as_f32((word >> (i * bits) & ((1u << bits) - 1u)) | 0x4b000000u) - 0x1p23f;
}

/* The value of 16 bits. NaN may have any payload, because products end with one_nan. */
GQN_FN float half_value(uint x, const int kind) {
    return kind == KIND_F16 ? half_to_float((ushort)x) : gqn_as_f32(x << 16);
}

/* Word `i` of a chunk. */
GQN_FN uint chunk_word(uint4 chunk, const int i) {
    return i == 0 ? chunk.x : i == 1 ? chunk.y : i == 2 ? chunk.z : chunk.w;
}

/* Chunk number `row` of a column; the last chunk if `row` is greater. */
GQN_FN uint4 chunk_at(const int kind, __global const uint4 *weights, int row, int at,
                      const product_shape *s) {
    const int last = (s->k - 1) / CHUNK_K(kind);
    return weights[(size_t)(row < last ? row : last) * (size_t)s->width + (size_t)at];
}

/* Weight `i` of a chunk, without scale and zero point. */
GQN_FN float chunk_value(const int kind, uint4 chunk, const int i) {
    if (kind == KIND_F32)
        return gqn_as_f32(chunk_word(chunk, i));
    if (kind > 8)
        return half_value(chunk_word(chunk, i / 2) >> i % 2 * 16 & 0xffffu, kind);
    return code_value(chunk_word(chunk, i / (32 / kind)), i % (32 / kind), kind);
}

/* The weight of k and a column, without scale and zero point. */
GQN_FN float weight_at(const int kind, __global const uint4 *weights, int k, int at,
                       const product_shape *s) {
    const size_t chunk = (size_t)(k / CHUNK_K(kind)) * (size_t)s->width + (size_t)at;
    const size_t i = chunk * (size_t)CHUNK_K(kind) + (size_t)(k % CHUNK_K(kind));
    if (kind == KIND_F32)
        return ((__global const float *)weights)[i];
    if (kind > 8)
        return half_value(((__global const ushort *)weights)[i], kind);
    return code_value(((__global const uint *)weights)[i / (32 / kind)] >> k % (32 / kind) * kind, 0,
                      kind);
}

/* The word of codes of a column that contains k, or the last k if k is greater. */
GQN_FN uint word_at(const int bits, __global const uint4 *weights, int k, int at,
                    const product_shape *s) {
    const int row = (k < s->k ? k : s->k - 1) / (32 / bits);
    const size_t chunk = (size_t)(row / 4) * (size_t)s->width + (size_t)at;
    return ((__global const uint *)weights)[chunk * 4 + (size_t)(row % 4)];
}

/* Index of the scale or zero point for k and column `at`; `step` is the width or zero_step. */
GQN_FN size_t block_at(int k, int at, int step, const product_shape *s) {
    const int b = k >> s->shift;
    return (size_t)(b < s->blocks ? b : s->blocks - 1) * (size_t)step + (size_t)at;
}

/* The type of rows that the kernels of MatMul multiply by weights of a kind. */
#define X_TYPE(kind) ((kind) == KIND_F16 ? F16 : (kind) == KIND_BF16 ? BF16 : F32)

/* Element i of x. */
GQN_FN float one_of(__global const uchar *x, const int type, size_t i) {
    return type == F32 ? ((__global const float *)x)[i]
                       : half_value(((__global const ushort *)x)[i],
                                    type == F16 ? KIND_F16 : KIND_BF16);
}

/* x[at + i] to x[at + i + 3], with zeros from `end` on. `aligned`: the row of x at `at` has a
 * length that is a multiple of four. */
GQN_FN float4 four_of(__global const uchar *x, const int type, size_t at, int i, int end,
                      bool aligned) {
    float4 v;
    if (aligned && i < end && type == F32)
        return *(__global const float4 *)((__global const float *)x + at + i);
    if (aligned && i < end) {
        const uint2 u = *(__global const uint2 *)((__global const ushort *)x + at + i);
        const int kind = type == F16 ? KIND_F16 : KIND_BF16;
        v.x = half_value(u.x & 0xffffu, kind);
        v.y = half_value(u.x >> 16, kind);
        v.z = half_value(u.y & 0xffffu, kind);
        v.w = half_value(u.y >> 16, kind);
        return v;
    }
    v.x = i < end ? one_of(x, type, at + i) : 0.0f;
    v.y = i + 1 < end ? one_of(x, type, at + i + 1) : 0.0f;
    v.z = i + 2 < end ? one_of(x, type, at + i + 2) : 0.0f;
    v.w = i + 3 < end ? one_of(x, type, at + i + 3) : 0.0f;
    return v;
}
