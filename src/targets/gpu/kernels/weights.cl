/* Constant weights as kernels of products read them: 128 bits at a time, a chunk.
 *
 * A row of weights has `width` columns, a multiple of 8, and those after the last are not used.
 *
 *   kind            a chunk has       a row has
 *   f32             4 columns         one k
 *   f16, bf16       8 columns         one k
 *   2, 4, 8 bits    4 columns         a word of 16, 8 or 4 k, lowest bits first
 *
 * Weights of codes are (code - zero) * scale; scales and zero points are [blocks][width], and blocks
 * have 1 << shift k, 16 at least. `kind` and other arguments called const are constants after a
 * function is inlined. */

#define KIND_F32  32
#define KIND_F16  16
#define KIND_BF16 17

#define CHUNK_N(kind) ((kind) == KIND_F16 || (kind) == KIND_BF16 ? 8 : 4)
#define CHUNK_K(kind) ((kind) <= 8 ? 32 / (kind) : 1)

/* product_shape of products.c. */
typedef struct product_shape {
    int m, k, n, width;
    int shift, blocks;
    int zero_step;  /* from the zero points of a block to the next: 0 if all are the same */
    int teams;      /* of a group, where a kernel has teams */
    int split;      /* a group has one piece, and y is [pieces][m][n] */
    int has_bias;
    int from_zero;  /* the first piece is added to zero (a block is longer than a piece) */
    int y_type;     /* of the result; parts of it (split) are fp32 */
} product_shape;

/* Code `i` of a word as a float. */
GQN_FN float code_value(uint word, const int i, const int bits) {
    return gqn_as_f32((word >> (i * bits) & ((1u << bits) - 1u)) | 0x4b000000u) - 0x1p23f;
}

/* The value of 16 bits; NaN may have any payload, for products end with one_nan. */
GQN_FN float half_value(uint x, const int kind) {
    return kind == KIND_F16 ? half_to_float((ushort)x) : gqn_as_f32(x << 16);
}

/* The number of a chunk in its row, whose columns begin with `at`, or of the last one. */
GQN_FN int chunk_of(const int kind, int at, const product_shape *s) {
    const int n = s->width / CHUNK_N(kind), i = at / CHUNK_N(kind);
    return i < n ? i : n - 1;
}

/* Chunk `i` of the row of k, or of the last k. */
GQN_FN uint4 chunk_at(const int kind, __global const uint4 *weights, int k, int i,
                      const product_shape *s) {
    const int last = s->k - 1, row = (k < last ? k : last) / CHUNK_K(kind);
    return weights[(size_t)row * (size_t)(s->width / CHUNK_N(kind)) + (size_t)i];
}

/* Index of scale or zero point of k and column `at`; `step` is the width or zero_step. */
GQN_FN size_t block_at(int k, int at, int step, const product_shape *s) {
    const int b = k >> s->shift;
    return (size_t)(b < s->blocks ? b : s->blocks - 1) * (size_t)step + (size_t)at;
}

/* The type of the rows that kernels of MatMul multiply with weights of a kind. */
#define X_TYPE(kind) ((kind) == KIND_F16 ? F16 : (kind) == KIND_BF16 ? BF16 : F32)

/* Element i of x. */
GQN_FN float one_of(__global const uchar *x, const int type, size_t i) {
    return type == F32 ? ((__global const float *)x)[i]
                       : half_value(((__global const ushort *)x)[i],
                                    type == F16 ? KIND_F16 : KIND_BF16);
}

/* x[at + i] to x[at + i + 3], and zeros from `end` on. Aligned: rows of x, of which one begins at
 * `at`, have a multiple of four elements. */
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
