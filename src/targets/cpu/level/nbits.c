/* linear_nbits for one level: y [M,64] = x [M,K] * a panel of quantised weights.
 *
 *   int8: piece = fma(float(sum of qa * (code - zp)), sa * scale, piece), blocks ascending
 *   fp32: piece = fma(x[k], (code - zp) * scale, piece), k ascending
 *   y = the first piece, then y + piece, each of GQAC_K_PIECE k
 *
 * Lanes are columns, so nothing is summed across lanes, and the tile of rows and columns that the
 * registers of a level hold changes no element. Integer sums are exact: sum of qa * (code - zp) =
 * sum of qa * code - zp * sum of qa, below 2^24. */
#include "targets/cpu/nbits.h"

#include "targets/cpu/level/level.h"

/* The registers hold INT8_ROWS rows of some columns, and fewer rows of more columns. Plain C
 * has no such registers, and is not unrolled. */
#if defined(__AVX512F__)
enum { WIDE = 1, INT8_ROWS = 6, FP32_ROWS = 6 };
#elif defined(__AVX2__)
enum { WIDE = 0, INT8_ROWS = 4, FP32_ROWS = 6 };
#else
enum { WIDE = 0, INT8_ROWS = 1, FP32_ROWS = 3 };
#endif
enum { GROUPS = NBITS_COLUMNS / 16, MOST_ROWS = 6 };
#if defined(__AVX2__)
#define UNROLL_(text) _Pragma(#text)
#define UNROLL(n)     UNROLL_(GCC unroll n)
#else
#define UNROLL(n)
#endif

/* ---- activations ----------------------------------------------------------- */

/* int8 of 16 numbers: to nearest even, clamped, NaN 0. */
VEC_FN void quantise16(const float *x, v16 inverse, int8_t *out) {
    const v16 least = v16_set1(-127.0f), most = v16_set1(127.0f);
    const v16 magic = v16_set1(0x1.8p23f); /* leaves the integer in the low bits */
    uint32_t bits[16];
    float lanes[16];
    v16 t = v16_mul(v16_load(x), inverse);
    t = v16_select(m16_unordered(t), v16_zero(), t);
    t = v16_select(m16_greater(least, t), least, t);
    t = v16_select(m16_greater(t, most), most, t);
    v16_store(lanes, v16_add(t, magic));
    memcpy(bits, lanes, sizeof bits);
    for (int i = 0; i < 16; i++)
        out[i] = (int8_t)(uint8_t)bits[i];
}

static float quantise_block(const float *x, int64_t n, int8_t *qa, int32_t *sum) {
    v16 most = v16_zero(), bad = v16_zero();
    for (int64_t i = 0; i < n; i += 16) {
        const v16 a = v16_abs(v16_load(x + i));
        most = v16_max_step(most, a);
        bad = v16_fma(a, v16_zero(), bad); /* NaN from an infinity and from NaN */
    }
    const float amax = v16_fold_max(most);
    const bool finite = m16_bits(m16_unordered(bad)) == 0;
    *sum = 0;
    if (!finite || amax == 0) {
        memset(qa, 0, (size_t)n);
        return finite ? 0.0f : gqn_as_f32(GQN_NAN_BITS);
    }
    const v16 inverse = v16_set1(127.0f / amax);
    for (int64_t i = 0; i < n; i += 16)
        quantise16(x + i, inverse, qa + i);
    int32_t total = 0;
    for (int64_t i = 0; i < n; i++)
        total += qa[i];
    *sum = total;
    return amax / 127.0f;
}

static void quantise(const nbits_shape *s, const float *x, int64_t row, cpu_nbits_rows *to) {
    const int64_t padded = s->blocks * s->block;
    for (int64_t b = 0; b < s->blocks; b++) {
        const int64_t k = b * s->block, first = k / GQAC_K_PIECE * GQAC_K_PIECE;
        const int64_t length = padded - first < GQAC_K_PIECE ? padded - first : GQAC_K_PIECE;
        int8_t *qa = to->qa + first * to->rows + row * length + (k - first);
        to->scale[b * to->rows + row] =
            quantise_block(x + k, s->block, qa, &to->sum[b * to->rows + row]);
    }
}

/* ---- scales and zero points ------------------------------------------------ */

VEC_FN v16 load_as(const void *p, gqac_dtype dtype, int64_t at) {
    if (dtype == GQAC_F32)
        return v16_load((const float *)p + at);
    if (dtype == GQAC_F16)
        return v16_load_f16((const uint16_t *)p + at);
    if (dtype == GQAC_BF16)
        return v16_load_bf16((const uint16_t *)p + at);
    float lanes[16];
    for (int i = 0; i < 16; i++)
        lanes[i] = (float)((const uint8_t *)p)[at + i];
    return v16_load(lanes);
}

/* n rows of 64 as fp32: where they lie, or in `room`. */
static const float *rows_as_f32(const void *p, gqac_dtype dtype, int64_t at, int64_t n,
                                float *room) {
    if (dtype == GQAC_F32)
        return (const float *)p + at;
    for (int64_t i = 0; i < n * NBITS_COLUMNS; i += 16)
        v16_store(room + i, load_as(p, dtype, at + i));
    return room;
}

/* ---- int8 -------------------------------------------------------------------- */

typedef struct int8_piece {
    const uint8_t *codes; /* of the piece, words of 64 columns */
    const float *scales;  /* [blocks][64] */
    const int32_t *zeros; /* [blocks][64], or NULL */
    const int8_t *qa;     /* rows of `length` */
    const float *scale;   /* [blocks] rows apart: the rows of the tile */
    const int32_t *sum;
    float *to; /* rows of 64 */
    int64_t length, rows, block, blocks;
    int32_t zero; /* where zeros is NULL */
} int8_piece;

VEC_FN v16i spread4(const int8_t *qa) {
    int32_t word;
    memcpy(&word, qa, sizeof word);
    return v16i_set1(word);
}

enum { WHOLE = V16I_NIBBLES > 8 }; /* no ends between sums */

/* sum[r][c] += the products of some words, where the lanes of sums are always at hand. */
VEC_FN void int8_whole(const uint8_t *codes, int words, const int8_t *qa, int64_t length,
                       const int bits, const int R, const int C, v16i sum[MOST_ROWS][GROUPS]) {
    const int fields = 8 / bits;
    const v16i mask = v16i_set1((int32_t)(0x01010101u * ((1u << bits) - 1u)));
    UNROLL(1)
    for (int w = 0; w < words; w++) {
        UNROLL(4)
        for (int f = 0; f < fields; f++) {
            v16i u[GROUPS];
            UNROLL(4)
            for (int c = 0; c < C; c++) {
                const v16i x = v16i_load(codes + c * 64);
                u[c] = bits == 8 ? x : v16i_and(f ? v16i_shr(x, f * bits) : x, mask);
            }
            UNROLL(8)
            for (int r = 0; r < R; r++) {
                const v16i s = spread4(qa + r * length + f * 4);
                UNROLL(4)
                for (int c = 0; c < C; c++)
                    sum[r][c] = bits == 8 ? v16i_dot_bytes(sum[r][c], u[c], s)
                                          : v16i_nibbles_add(sum[r][c], u[c], s);
            }
        }
        codes += NBITS_WORD_BYTES;
        qa += 4 * fields;
    }
}

/* sum[r][c] += 32 k at most: eight sums of nibbles, then their end. */
VEC_FN void int8_segment(const uint8_t *codes, int words, const int8_t *qa, int64_t length,
                         const int bits, const int R, const int C, v16i sum[MOST_ROWS][GROUPS]) {
    const int cuts = bits == 8 ? 2 : 1; /* 8-bit codes as two nibbles */
    const int width = bits / cuts, fields = 8 / bits;
    const v16i mask = v16i_set1((int32_t)(0x01010101u * ((1u << width) - 1u)));
    v16i part[2][MOST_ROWS][GROUPS];
    UNROLL(2)
    for (int h = 0; h < cuts; h++)
        UNROLL(8)
    for (int r = 0; r < R; r++)
        UNROLL(4)
    for (int c = 0; c < C; c++)
        part[h][r][c] = v16i_zero();
    for (int w = 0; w < words; w++) {
        v16i word[GROUPS];
        UNROLL(4)
        for (int c = 0; c < C; c++)
            word[c] = v16i_load(codes + w * NBITS_WORD_BYTES + c * 64);
        UNROLL(4)
        for (int f = 0; f < fields; f++)
            UNROLL(2)
        for (int h = 0; h < cuts; h++) {
            v16i u[GROUPS];
            UNROLL(4)
            for (int c = 0; c < C; c++) {
                const int shift = f * bits + h * width;
                const v16i x = shift ? v16i_shr(word[c], shift) : word[c];
                u[c] = v16i_and(x, mask);
            }
            UNROLL(8)
            for (int r = 0; r < R; r++) {
                const v16i s = spread4(qa + r * length + (w * fields + f) * 4);
                UNROLL(4)
                for (int c = 0; c < C; c++)
                    part[h][r][c] = v16i_nibbles_add(part[h][r][c], u[c], s);
            }
        }
    }
    UNROLL(8)
    for (int r = 0; r < R; r++)
        UNROLL(4)
    for (int c = 0; c < C; c++) {
        v16i total = v16i_nibbles_end(part[0][r][c]);
        if (cuts == 2) {
            const v16i high = v16i_nibbles_end(part[1][r][c]);
            total = v16i_add(total, v16i_mul(high, v16i_set1(16)));
        }
        sum[r][c] = v16i_add(sum[r][c], total);
    }
}

VEC_FN v16i taken_off(const int8_piece *p, int64_t block, int row, int column) {
    const int32_t sum = p->sum[block * p->rows + row];
    if (!p->zeros)
        return v16i_set1(-p->zero * sum);
    return v16i_mul(v16i_set1(-sum), v16i_load(p->zeros + block * NBITS_COLUMNS + column));
}

/* R rows of 16 C columns from `column`. Where the sums alone fill the registers (WHOLE), the piece
 * goes on in memory. */
VEC_FN void int8_tile(const int8_piece *p, const int column, const int bits, const int R,
                      const int C) {
    const int words = (int)p->block * bits / 32;
    const int step = words < bits ? words : bits; /* words of 32 k, or of 16 */
    const uint8_t *codes = p->codes + column * 4;
    const int8_t *qa = p->qa;
    v16 piece[MOST_ROWS][GROUPS];
    UNROLL(8)
    for (int r = 0; r < R; r++)
        UNROLL(4)
    for (int c = 0; c < C; c++) {
        piece[r][c] = v16_zero();
        v16_store(p->to + r * NBITS_COLUMNS + column + c * 16, piece[r][c]);
    }
    for (int64_t b = 0; b < p->blocks; b++) {
        const float *scales = p->scales + b * NBITS_COLUMNS + column;
        v16i sum[MOST_ROWS][GROUPS];
        if (R == 1)
            __builtin_prefetch(codes + 16 * NBITS_WORD_BYTES);
        UNROLL(8)
        for (int r = 0; r < R; r++)
            UNROLL(4)
        for (int c = 0; c < C; c++)
            sum[r][c] = taken_off(p, b, r, column + c * 16);
        if (WHOLE)
            int8_whole(codes, words, qa, p->length, bits, R, C, sum);
        for (int w = 0; !WHOLE && w < words; w += step)
            int8_segment(codes + w * NBITS_WORD_BYTES, step, qa + w * 32 / bits, p->length, bits, R,
                         C, sum);
        codes += words * NBITS_WORD_BYTES;
        qa += p->block;
        UNROLL(8)
        for (int r = 0; r < R; r++) {
            const v16 sa = v16_set1(p->scale[b * p->rows + r]);
            UNROLL(4)
            for (int c = 0; c < C; c++) {
                float *to = p->to + r * NBITS_COLUMNS + column + c * 16;
                const v16 scale = v16_mul(sa, v16_load(scales + c * 16));
                if (WHOLE)
                    v16_store(to, v16_fma(v16_of_v16i(sum[r][c]), scale, v16_load(to)));
                else
                    piece[r][c] = v16_fma(v16_of_v16i(sum[r][c]), scale, piece[r][c]);
            }
        }
    }
    UNROLL(8)
    for (int r = 0; !WHOLE && r < R; r++)
        UNROLL(4)
    for (int c = 0; c < C; c++)
        v16_store(p->to + r * NBITS_COLUMNS + column + c * 16, piece[r][c]);
}

/* R rows of all columns: as many columns at once as the registers hold. */
VEC_FN void int8_rows(const int8_piece *p, const int bits, const int R) {
    const int C = WIDE || R == 1 ? 4 : R == 2 ? 2 : 1;
    for (int column = 0; column < NBITS_COLUMNS; column += 16 * C)
        int8_tile(p, column, bits, R, C);
}

/* R is a constant of each call, so that a tile lies in registers. */
VEC_FN void int8_bits(const int8_piece *p, int64_t count, const int bits) {
    if (INT8_ROWS == 1 || count == 1)
        int8_rows(p, bits, 1);
    else if (count == 2)
        int8_rows(p, bits, 2);
    else if (count == 3)
        int8_rows(p, bits, 3);
    else if (INT8_ROWS == 4 || count == 4)
        int8_rows(p, bits, 4);
    else if (count == 5)
        int8_rows(p, bits, 5);
    else
        int8_rows(p, bits, 6);
}
static void int8_bits2(const int8_piece *p, int64_t count) {
    int8_bits(p, count, 2);
}
static void int8_bits4(const int8_piece *p, int64_t count) {
    int8_bits(p, count, 4);
}
static void int8_bits8(const int8_piece *p, int64_t count) {
    int8_bits(p, count, 8);
}

/* y = the first piece, then y + piece. */
VEC_FN void add_piece(cpu_nbits_room *room, const float *piece, int64_t count) {
    for (int64_t i = 0; piece != room->y && i < count * NBITS_COLUMNS; i += 16)
        v16_store(room->y + i, v16_add(v16_load(room->y + i), v16_load(piece + i)));
}

static void int8(const cpu_nbits_weights *w, int64_t panel, const cpu_nbits_rows *a, int64_t first,
                 int64_t count, cpu_nbits_room *room) {
    const nbits_shape *s = &w->shape;
    const int64_t padded = s->blocks * s->block;
    void (*const tile)(const int8_piece *, int64_t) = s->bits == 2   ? int8_bits2
                                                      : s->bits == 4 ? int8_bits4
                                                                     : int8_bits8;
    for (int64_t k = 0; k < padded; k += GQAC_K_PIECE) {
        const int64_t length = padded - k < GQAC_K_PIECE ? padded - k : GQAC_K_PIECE;
        const int64_t block = k / s->block, at = (panel * s->blocks + block) * NBITS_COLUMNS;
        int8_piece p = {.codes =
                            w->codes + (panel * s->words + k * s->bits / 32) * NBITS_WORD_BYTES,
                        .zeros = w->zeros ? room->zero_codes : NULL,
                        .length = length,
                        .rows = a->rows,
                        .block = s->block,
                        .blocks = length / s->block,
                        .zero = 1 << (s->bits - 1)};
        float *to = k == 0 ? room->y : room->piece;
        p.scales = rows_as_f32(w->scales, w->scale_type, at, p.blocks, room->scales);
        for (int64_t i = 0; w->zeros && i < p.blocks * NBITS_COLUMNS; i++)
            room->zero_codes[i] = ((const uint8_t *)w->zeros)[at + i] & ((1 << s->bits) - 1);
        for (int64_t m = 0; m < count;) {
            const int64_t rows = count - m < INT8_ROWS ? count - m : INT8_ROWS;
            p.qa = a->qa + k * a->rows + (first + m) * length;
            p.scale = a->scale + block * a->rows + first + m;
            p.sum = a->sum + block * a->rows + first + m;
            p.to = to + m * NBITS_COLUMNS;
            tile(&p, rows);
            m += rows;
        }
        add_piece(room, to, count);
    }
}

/* ---- fp32 -------------------------------------------------------------------- */

/* room[k][64] = (code - zp) * scale of CPU_NBITS_STEP k at most. */
VEC_FN void expand_bits(const cpu_nbits_weights *w, int64_t panel, int64_t k, int64_t n_k,
                        const float *scales, const float *zeros, float *room, const int bits) {
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
                v16_store(room + (i + j) * NBITS_COLUMNS + c * 16,
                          v16_mul(v16_sub(v16_of_v16i(code), zero), scale));
            }
        }
    }
}

static void expand(const cpu_nbits_weights *w, int64_t panel, int64_t k, int64_t n_k,
                   const float *scales, const float *zeros, float *room) {
    if (w->shape.bits == 2)
        expand_bits(w, panel, k, n_k, scales, zeros, room, 2);
    else if (w->shape.bits == 4)
        expand_bits(w, panel, k, n_k, scales, zeros, room, 4);
    else
        expand_bits(w, panel, k, n_k, scales, zeros, room, 8);
}

/* piece[r][64] goes on over n_k terms; from zero when `starts`. */
VEC_FN void fp32_tile(const float *x, const float *w, int64_t n_k, bool starts, float *piece,
                      const int R, const int C) {
    for (int column = 0; column < NBITS_COLUMNS; column += 16 * C) {
        v16 acc[MOST_ROWS][GROUPS];
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
    for (; m + FP32_ROWS <= count; m += FP32_ROWS)
        fp32_tile(x + m * CPU_NBITS_STEP, w, n_k, starts, piece + m * NBITS_COLUMNS, FP32_ROWS,
                  WIDE ? 4 : 1);
    for (; m + 3 <= count; m += 3)
        fp32_tile(x + m * CPU_NBITS_STEP, w, n_k, starts, piece + m * NBITS_COLUMNS, 3,
                  WIDE ? 4 : 2);
    for (; m < count; m++)
        fp32_tile(x + m * CPU_NBITS_STEP, w, n_k, starts, piece + m * NBITS_COLUMNS, 1, 4);
}

static void fp32(const cpu_nbits_weights *w, int64_t panel, const float *x, int64_t rows,
                 int64_t first, int64_t count, cpu_nbits_room *room) {
    const nbits_shape *s = &w->shape;
    for (int64_t k0 = 0; k0 < s->k; k0 += GQAC_K_PIECE) {
        const int64_t end = s->k - k0 < GQAC_K_PIECE ? s->k : k0 + GQAC_K_PIECE;
        const int64_t block = k0 / s->block, at = (panel * s->blocks + block) * NBITS_COLUMNS;
        const int64_t blocks = (end - k0 + s->block - 1) / s->block;
        const float *zeros = NULL;
        const float *scales = rows_as_f32(w->scales, w->scale_type, at, blocks, room->scales);
        if (w->zeros)
            zeros = rows_as_f32(w->zeros, w->zero_type, at, blocks, room->zeros);
        float *piece = k0 == 0 ? room->y : room->piece;
        for (int64_t k = k0; k < end; k += CPU_NBITS_STEP) {
            const int64_t n_k = end - k < CPU_NBITS_STEP ? end - k : CPU_NBITS_STEP;
            expand(w, panel, k, n_k, scales, zeros, room->weights);
            fp32_rows(x + k * rows + first * CPU_NBITS_STEP, room->weights, n_k, k == k0, piece,
                      count);
        }
        add_piece(room, piece, count);
    }
}

static void finish(float *y, int64_t count, const float *bias) {
    for (int64_t i = 0; i < count * NBITS_COLUMNS; i += 16) {
        v16 x = v16_one_nan(v16_load(y + i));
        if (bias)
            x = v16_one_nan(v16_add(x, v16_load(bias + i % NBITS_COLUMNS)));
        v16_store(y + i, x);
    }
}

extern const cpu_nbits_kernels CPU_NAME(cpu_nbits);
const cpu_nbits_kernels CPU_NAME(cpu_nbits) = {
    .quantise = quantise, .int8 = int8, .fp32 = fp32, .finish = finish};
