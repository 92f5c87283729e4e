/* linear_nbits with fp32 activations: CPU_NBITS_STEP k of a panel are converted to fp32 weights at
 * once, and multiplied as fp32. nbits.c defines the result. */
#include "targets/cpu/level/nbits.h"

/* scratch[k][64] = (code - zp) * scale, for at most CPU_NBITS_STEP k. */
VEC_FN void expand_bits(const cpu_nbits_weights *w, int64_t panel, int64_t k, int64_t n_k,
                        const float *scales, const float *zeros, float *scratch, const int bits) {
    const int per = 32 / bits;
    const v16i mask = v16i_set1((1 << bits) - 1);
    for (int64_t i = 0; i < n_k; i += per) {
        const int64_t word = (k + i) / per, block = k % GQAC_K_PIECE + i;
        const uint8_t *codes = w->codes + (panel * w->shape.words + word) * NBITS_WORD_BYTES;
        const int64_t at = block / w->shape.block * NBITS_COLUMNS;
        UNROLL(4)
        for (int c = 0; c < GROUPS; c++) {
            const v16i x = v16i_load(codes + c * 64);
            const v16 scale = v16_load(scales + at + c * 16);
            const v16 zero =
                zeros ? v16_load(zeros + at + c * 16) : v16_set1((float)(1 << (bits - 1)));
            UNROLL(16)
            for (int j = 0; j < per; j++) {
                const int shift = 8 * (j % 4) + bits * (j / 4);
                const v16i code = v16i_and(shift ? v16i_shr(x, shift) : x, mask);
                v16_store(scratch + (i + j) * NBITS_COLUMNS + c * 16,
                          v16_mul(v16_sub(v16_of_v16i(code), zero), scale));
            }
        }
    }
}

static void expand(const cpu_nbits_weights *w, int64_t panel, int64_t k, int64_t n_k,
                   const float *scales, const float *zeros, float *scratch) {
    if (w->shape.bits == 2)
        expand_bits(w, panel, k, n_k, scales, zeros, scratch, 2);
    else if (w->shape.bits == 4)
        expand_bits(w, panel, k, n_k, scales, zeros, scratch, 4);
    else
        expand_bits(w, panel, k, n_k, scales, zeros, scratch, 8);
}

/* Continues piece[r][64] over n_k terms; if `starts`, it begins at zero. */
VEC_FN void fp32_tile(const float *x, const float *w, int64_t n_k, bool starts, float *piece,
                      const int R, const int C) {
    for (int column = 0; column < NBITS_COLUMNS; column += 16 * C) {
        v16 acc[TILE_ROWS][GROUPS];
        UNROLL(8)
        for (int r = 0; r < R; r++)
            UNROLL(4)
        for (int c = 0; c < C; c++)
            acc[r][c] = starts ? v16_zero() : v16_load(piece + r * NBITS_COLUMNS + column + c * 16);
        for (int64_t k = 0; k < n_k; k++) {
            v16 b[GROUPS];
            UNROLL(4)
            for (int c = 0; c < C; c++)
                b[c] = v16_load(w + k * NBITS_COLUMNS + column + c * 16);
            UNROLL(8)
            for (int r = 0; r < R; r++) {
                const v16 a = v16_set1(x[r * CPU_NBITS_STEP + k]);
                UNROLL(4)
                for (int c = 0; c < C; c++)
                    acc[r][c] = v16_fma(a, b[c], acc[r][c]);
            }
        }
        UNROLL(8)
        for (int r = 0; r < R; r++)
            UNROLL(4)
        for (int c = 0; c < C; c++)
            v16_store(piece + r * NBITS_COLUMNS + column + c * 16, acc[r][c]);
    }
}

static void fp32_rows(const float *x, const float *w, int64_t n_k, bool starts, float *piece,
                      int64_t count) {
    int64_t m = 0;
    for (; m + TILE_ROWS <= count; m += TILE_ROWS)
        fp32_tile(x + m * CPU_NBITS_STEP, w, n_k, starts, piece + m * NBITS_COLUMNS, TILE_ROWS,
                  TILE_VECTORS);
    for (; m + 3 <= count; m += 3)
        fp32_tile(x + m * CPU_NBITS_STEP, w, n_k, starts, piece + m * NBITS_COLUMNS, 3,
                  TILE_VECTORS == 1 ? 2 : 4);
    for (; m < count; m++)
        fp32_tile(x + m * CPU_NBITS_STEP, w, n_k, starts, piece + m * NBITS_COLUMNS, 1, 4);
}

/* y = the first piece, then y + piece. */
VEC_FN void add_piece(cpu_nbits_scratch *scratch, const float *piece, int64_t count) {
    for (int64_t i = 0; piece != scratch->y && i < count * NBITS_COLUMNS; i += 16)
        v16_store(scratch->y + i, v16_add(v16_load(scratch->y + i), v16_load(piece + i)));
}

void CPU_NAME(nbits_fp32)(const cpu_nbits_weights *w, int64_t panel, const float *x, int64_t rows,
                          int64_t first, int64_t count, cpu_nbits_scratch *scratch) {
    const nbits_shape *s = &w->shape;
    for (int64_t k0 = 0; k0 < s->k; k0 += GQAC_K_PIECE) {
        const int64_t end = s->k - k0 < GQAC_K_PIECE ? s->k : k0 + GQAC_K_PIECE;
        const int64_t block = k0 / s->block, at = (panel * s->blocks + block) * NBITS_COLUMNS;
        const int64_t blocks = (end - k0 + s->block - 1) / s->block;
        const float *zeros = NULL;
        const float *scales = rows_as_f32(w->scales, w->scale_type, at, blocks, scratch->scales);
        if (w->zeros)
            zeros = rows_as_f32(w->zeros, w->zero_type, at, blocks, scratch->zeros);
        float *piece = k0 == 0 ? scratch->y : scratch->piece;
        for (int64_t k = k0; k < end; k += CPU_NBITS_STEP) {
            const int64_t n_k = end - k < CPU_NBITS_STEP ? end - k : CPU_NBITS_STEP;
            expand(w, panel, k, n_k, scales, zeros, scratch->weights);
            fp32_rows(x + k * rows + first * CPU_NBITS_STEP, scratch->weights, n_k, k == k0, piece,
                      count);
        }
        add_piece(scratch, piece, count);
    }
}
