/* linear_nbits for one level: y [M,64] = x [M,K] * a panel of quantised weights.
 *
 *   int8: piece = fma(float(sum of qa * (code - zp)), sa * scale, piece), blocks ascending
 *   fp32: piece = fma(x[k], (code - zp) * scale, piece), k ascending
 *   y = the first piece, then y + piece, each of GQAC_K_PIECE k
 *
 * Each lane is a column, so nothing is summed across lanes, and the size of a level's tile changes
 * no element. Integer sums are exact: sum of qa * (code - zp) = sum of qa * code - zp * sum of qa,
 * below 2^24. */
#include "targets/cpu/level/nbits.h"

#include "targets/cpu/level/ahead.h"

enum {
    ENDS = V16I_NIBBLES <= 8, /* products of bytes are summed as nibbles, 32 k at a time */
    HALVES = ENDS ? 2 : 1,    /* nibbles of an 8-bit code that are multiplied separately */
    /* For one row, codes are prefetched this many bytes in advance. With AVX-512, 8192 is up
     * to 1.14 times as fast as 4096 on Zen 4, and 16384 no faster; with AVX2 both take as long. */
    AHEAD = V16_REGISTERS >= 32 ? 8192 : 4096,
    SOON = GQAC_K_PIECE / 2, /* for the rows of one tile, this many k in advance */
    WIDTH = 16 * TILE_VECTORS,
    PARTS = NBITS_COLUMNS / WIDTH, /* strips of a panel, each of which is one tile wide */
};

/* ---- activations ----------------------------------------------------------- */

/* Writes 16 numbers as int8: rounded to nearest even and clamped; NaN becomes 0. Returns `sums`
 * plus these integers. */
VEC_FN v16 quantise16(const float *x, v16 inverse, int8_t *out, v16 sums) {
    const v16 least = v16_set1(-127.0f), most = v16_set1(127.0f);
    const v16 magic = v16_set1(0x1.8p23f);
    v16 t = v16_mul(v16_load(x), inverse);
    t = v16_select(m16_unordered(t), v16_zero(), t);
    t = v16_select(m16_greater(least, t), least, t);
    t = v16_select(m16_greater(t, most), most, t);
    t = v16_sub(v16_add(t, magic), magic);
    v16_store_i8(out, t);
    return v16_add(sums, t);
}

/* The sum of lanes 4 i and 4 i + 1 in the low half, the sum of the others in the high half;
 * exact. */
static int32_t pair_of_sums(v16 sums) {
    float lane[16];
    v16_store(lane, sums);
    for (int half = 8; half >= 4; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    const int32_t low = (int32_t)(lane[0] + lane[1]), high = (int32_t)(lane[2] + lane[3]);
    return (int32_t)(((uint32_t)low & 0xffffu) | (uint32_t)high << 16);
}

static float quantise_block(const float *x, int64_t n, int8_t *qa, int32_t *sum) {
    v16 most = v16_zero(), bad = v16_zero(), sums = v16_zero();
    for (int64_t i = 0; i < n; i += 16) {
        const v16 a = v16_abs(v16_load(x + i));
        most = v16_max_step(most, a);
        bad = v16_fma(a, v16_zero(), bad); /* becomes NaN if there are infinities or NaN */
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
        sums = quantise16(x + i, inverse, qa + i, sums);
    *sum = pair_of_sums(sums);
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

/* ---- int8 -------------------------------------------------------------------- */

/* One piece of some columns of a panel. */
typedef struct int8_piece {
    const uint8_t *codes; /* words of 64 columns, or bytes of these columns */
    const float *scales;  /* [blocks] of 64 columns */
    const int32_t *zeros; /* [blocks] of 64 columns, or NULL: `zero` */
    const int8_t *qa;     /* rows of `length` */
    const float *scale;   /* [blocks], `rows` apart: scales of the tile rows */
    const int32_t *sum;
    float *y; /* rows of 64 */
    int64_t length, rows, block, blocks;
    int32_t zero; /* the negative zero point, in each half */
    bool first;   /* this is the first piece of y */
    ahead next_codes, next_scales;
} int8_piece;

typedef v16i int8_sums[2][TILE_ROWS][GROUPS]; /* sums of low and of high nibbles */

/* Prefetches codes. The address may be after the end of the weights. */
VEC_FN void fetch(const uint8_t *codes, const int ahead) {
    __builtin_prefetch((const void *)((uintptr_t)codes + (uintptr_t)ahead));
}

VEC_FN v16i spread4(const int8_t *qa) {
    int32_t word;
    memcpy(&word, qa, sizeof word);
    return v16i_set1(word);
}

VEC_FN v16i add_products(v16i sum, v16i u, v16i s) {
    return ENDS ? v16i_nibbles_add(sum, u, s) : v16i_dot_bytes(sum, u, s);
}

/* The bytes of field f of a word, or a nibble of each byte. */
VEC_FN v16i cut(v16i word, const int f, const int h, const int bits, const int cuts) {
    const int width = bits / cuts, shift = f * bits + h * width;
    const v16i x = shift ? v16i_shr(word, shift) : word;
    return width == 8 ? x : v16i_and(x, v16i_set1(0x01010101 * ((1 << width) - 1)));
}

/* sums += the products of u with four k of R rows. */
VEC_FN void add_rows(int8_sums sums, v16i u[2][GROUPS], const int8_t *qa, int64_t length,
                     const int cuts, const int R, const int C) {
    UNROLL(8)
    for (int r = 0; r < R; r++) {
        const v16i s = spread4(qa + r * length);
        UNROLL(2)
        for (int h = 0; h < cuts; h++)
            UNROLL(4)
        for (int c = 0; c < C; c++)
            sums[h][r][c] = add_products(sums[h][r][c], u[h][c], s);
    }
}

/* sums += the products of one word of each column with one row. */
VEC_FN void add_word(int8_sums sums, const uint8_t *codes, const int8_t *qa, const int bits,
                     const int cuts, const int C) {
    const int fields = 8 / bits;
    v16i s[4];
    UNROLL(4)
    for (int f = 0; f < fields; f++)
        s[f] = spread4(qa + f * 4);
    UNROLL(4)
    for (int c = 0; c < C; c++) {
        const v16i word = v16i_load(codes + c * 64);
        UNROLL(4)
        for (int f = 0; f < fields; f++)
            UNROLL(2)
        for (int h = 0; h < cuts; h++)
            sums[h][0][c] = add_products(sums[h][0][c], cut(word, f, h, bits, cuts), s[f]);
    }
}

/* The same with R rows. */
VEC_FN void add_words(int8_sums sums, const uint8_t *codes, const int8_t *qa, int64_t length,
                      const int bits, const int cuts, const int R, const int C) {
    v16i word[GROUPS], u[2][GROUPS];
    UNROLL(4)
    for (int c = 0; c < C; c++)
        word[c] = v16i_load(codes + c * 64);
    UNROLL(4)
    for (int f = 0; f < 8 / bits; f++) {
        UNROLL(2)
        for (int h = 0; h < cuts; h++)
            UNROLL(4)
        for (int c = 0; c < C; c++)
            u[h][c] = cut(word[c], f, h, bits, cuts);
        add_rows(sums, u, qa + f * 4, length, cuts, R, C);
    }
}

/* sums += the products of the bytes of four k for each column. */
VEC_FN void add_bytes(int8_sums sums, const uint8_t *bytes, const int8_t *qa, int64_t length,
                      const int cuts, const int R, const int C) {
    v16i u[2][GROUPS];
    UNROLL(2)
    for (int h = 0; h < cuts; h++)
        UNROLL(4)
    for (int c = 0; c < C; c++)
        u[h][c] = v16i_load(bytes + (h * C + c) * 64);
    add_rows(sums, u, qa, length, cuts, R, C);
}

/* sums += the products of a word; or, with bits 0 (codes are bytes), of four k. */
VEC_FN void add_step(int8_sums sums, const uint8_t *codes, const int8_t *qa, int64_t length,
                     ahead *next, const int bits, const int cuts, const int R, const int C) {
    if (!bits) {
        add_bytes(sums, codes, qa, length, cuts, R, C);
        return;
    }
    if (R == 1 && C == GROUPS) { /* the panel is read in order, so the next codes are near */
        UNROLL(4)
        for (int c = 0; c < C; c++)
            fetch(codes, AHEAD + c * LINE);
        add_word(sums, codes, qa, bits, cuts, C);
    } else {
        ahead_step(next);
        add_words(sums, codes, qa, length, bits, cuts, R, C);
    }
}
/* sums += the products of n k; advances codes and qa past these. `whole`: n is a constant, so that
 * no loop remains. */
VEC_FN void add_products_of(int8_sums sums, const uint8_t **codes, const int8_t **qa, int64_t n,
                            int64_t length, ahead *next, const bool whole, const int bits,
                            const int cuts, const int R, const int C) {
    const int step = bits ? 32 / bits : 4, bytes = bits ? NBITS_WORD_BYTES : cuts * C * 64;
    const uint8_t *at = *codes;
    const int8_t *q = *qa, *end = q + n;
    if (whole) {
        UNROLL(8)
        for (int i = 0; i < n / step; i++)
            add_step(sums, at + i * bytes, q + i * step, length, next, bits, cuts, R, C);
        at += n / step * bytes;
        q = end;
    }
    UNROLL(1)
    for (; q < end; q += step, at += bytes)
        add_step(sums, at, q, length, next, bits, cuts, R, C);
    *codes = at;
    *qa = q;
}

/* sum = the contribution of the zero points to a block, negative. */
VEC_FN void start_sums(const int8_piece *p, int64_t block, v16i sum[TILE_ROWS][GROUPS],
                       const bool small, const int R, const int C) {
    UNROLL(8)
    for (int r = 0; r < R; r++) {
        const v16i pair = v16i_set1(p->sum[block * p->rows + r]);
        UNROLL(4)
        for (int c = 0; c < C; c++) {
            const v16i zero = p->zeros ? v16i_load(p->zeros + block * NBITS_COLUMNS + c * 16)
                                       : v16i_set1(p->zero);
            sum[r][c] = small ? v16i_mul_pairs(zero, pair) : v16i_dot_pairs(zero, pair);
        }
    }
}

/* sum = the products of a block, on levels that must end sums after 32 k. */
VEC_FN void block_in_steps(const int8_piece *p, int64_t block, const uint8_t **codes,
                           const int8_t **qa, ahead *next, v16i sum[TILE_ROWS][GROUPS],
                           const int bits, const int cuts, const int R, const int C) {
    const int64_t step =
        cuts == 2 && p->block < 32 ? p->block : 32; /* form_of chooses such blocks */
    start_sums(p, block, sum, false, R, C);
    for (int64_t k = 0; k < p->block; k += step) {
        int8_sums part;
        UNROLL(2)
        for (int h = 0; h < cuts; h++)
            UNROLL(8)
        for (int r = 0; r < R; r++)
            UNROLL(4)
        for (int c = 0; c < C; c++)
            part[h][r][c] = v16i_zero();
        add_products_of(part, codes, qa, step, p->length, next, cuts == 1 && R > 1, bits, cuts, R,
                        C);
        UNROLL(8)
        for (int r = 0; r < R; r++)
            UNROLL(4)
        for (int c = 0; c < C; c++) {
            sum[r][c] = v16i_add(sum[r][c], v16i_nibbles_end(part[0][r][c], 1));
            if (cuts == 2)
                sum[r][c] = v16i_add(sum[r][c], v16i_nibbles_end(part[1][r][c], 16));
        }
    }
}

/* Computes R rows of 16 C columns. bits: of codes in words; 0: the codes are bytes. block: the
 * length of a block if it is 16 or 32; 0: it is p->block. For so few k, halves of sums start from
 * the zero points and stay below 2^15: each is the sum of 16 products of qa and code - zp, or -zp
 * where the code is not yet added. */
VEC_FN void int8_tile(const int8_piece *p, const int bits, const int cuts, const int block,
                      const int R, const int C) {
    const bool small = ENDS && block;
    const uint8_t *codes = p->codes;
    const int8_t *qa = p->qa;
    ahead next_codes = p->next_codes, next_scales = p->next_scales;
    v16 piece[TILE_ROWS][GROUPS];
    UNROLL(8)
    for (int r = 0; r < R; r++)
        UNROLL(4)
    for (int c = 0; c < C; c++)
        piece[r][c] = v16_zero();
    for (int64_t b = 0; b < p->blocks; b++) {
        int8_sums sums;
        if (ENDS && !small)
            block_in_steps(p, b, &codes, &qa, &next_codes, sums[0], bits, cuts, R, C);
        else {
            start_sums(p, b, sums[0], ENDS, R, C);
            add_products_of(sums, &codes, &qa, block ? block : p->block, p->length, &next_codes,
                            block && R > 1, bits, 1, R, C);
        }
        if (bits && (R > 1 || C < GROUPS))
            ahead_step(&next_scales);
        UNROLL(8)
        for (int r = 0; r < R; r++) {
            const v16 sa = v16_set1(p->scale[b * p->rows + r]);
            UNROLL(4)
            for (int c = 0; c < C; c++) {
                const v16 scale = v16_mul(sa, v16_load(p->scales + b * NBITS_COLUMNS + c * 16));
                const v16i sum = small ? v16i_nibbles_end(sums[0][r][c], 1) : sums[0][r][c];
                piece[r][c] = v16_fma(v16_of_v16i(sum), scale, piece[r][c]);
            }
        }
    }
    UNROLL(8)
    for (int r = 0; r < R; r++)
        UNROLL(4)
    for (int c = 0; c < C; c++) {
        float *y = p->y + r * NBITS_COLUMNS + c * 16;
        v16_store(y, p->first ? piece[r][c] : v16_add(v16_load(y), piece[r][c]));
    }
}

/* Computes one row from words; the panel is read once, in order. */
VEC_FN void int8_row(const int8_piece *p, const int bits) {
    if (p->block == 32)
        int8_tile(p, bits, 1, 32, 1, GROUPS);
    else if (p->block == 16 && bits < 8)
        int8_tile(p, bits, 1, 16, 1, GROUPS);
    else
        int8_tile(p, bits, 1, 0, 1, GROUPS);
}

#define TILE(r)                                                                                    \
    case r:                                                                                        \
        if (r <= most)                                                                             \
            int8_tile(p, bits, cuts, block, r <= TILE_ROWS ? r : 1, TILE_VECTORS);                 \
        break
#define TILES(name, bits_, cuts_, block_, most_)                                                   \
    static void name(const int8_piece *p, int rows) {                                              \
        const int bits = bits_, cuts = cuts_, block = block_, most = most_;                        \
        switch (rows) { TILE_CASES(TILE); }                                                        \
    }
/* Blocks of any length, then of 16 and of 32. */
TILES(tile_bytes, 0, 1, 0, TILE_ROWS)
TILES(tile_bytes16, 0, 1, 16, TILE_ROWS)
TILES(tile_bytes32, 0, 1, 32, TILE_ROWS)
TILES(tile_halves, 0, HALVES, 0, TILE_ROWS / HALVES)
TILES(tile_words2, 2, 1, 0, WORD_ROWS)
TILES(tile_words2_32, 2, 1, 32, WORD_ROWS)
TILES(tile_words4, 4, 1, 0, WORD_ROWS)
TILES(tile_words4_16, 4, 1, 16, WORD_ROWS)
TILES(tile_words4_32, 4, 1, 32, WORD_ROWS)
TILES(tile_words8, 8, HALVES, 0, TILE_ROWS / HALVES)

/* Converts the codes of a piece, 16 C columns from the words of 64, to bytes [k / 4][cuts][16
 * C][4]. */
VEC_FN void unpack(const uint8_t *codes, int64_t words, uint8_t *to, const int bits,
                   const int cuts) {
    const int C = TILE_VECTORS, fields = 8 / bits;
    for (int64_t w = 0; w < words; w++) {
        UNROLL(4)
        for (int c = 0; c < C; c++) {
            const v16i word = v16i_load(codes + c * 64);
            fetch(codes, C * 64 + c * LINE); /* the columns that follow */
            UNROLL(4)
            for (int f = 0; f < fields; f++)
                UNROLL(2)
            for (int h = 0; h < cuts; h++)
                v16i_store(to + ((f * cuts + h) * C + c) * 64, cut(word, f, h, bits, cuts));
        }
        codes += NBITS_WORD_BYTES;
        to += fields * cuts * C * 64;
    }
}

static void unpack2(const uint8_t *codes, int64_t words, uint8_t *to) {
    unpack(codes, words, to, 2, 1);
}
static void unpack4(const uint8_t *codes, int64_t words, uint8_t *to) {
    unpack(codes, words, to, 4, 1);
}
static void unpack8(const uint8_t *codes, int64_t words, uint8_t *to) {
    unpack(codes, words, to, 8, HALVES);
}
static void row2(const int8_piece *p) {
    int8_row(p, 2);
}
static void row4(const int8_piece *p) {
    int8_row(p, 4);
}
static void row8(const int8_piece *p) {
    int8_row(p, 8);
}

/* The functions for a number of bits. */
enum { WORDS_ARE_BYTES = !ENDS && 16 * TILE_VECTORS - NBITS_COLUMNS == 0 }; /* of 8 bits */
typedef struct int8_form {
    void (*row)(const int8_piece *p); /* NULL: one row is computed as a tile */
    void (*unpack)(const uint8_t *codes, int64_t words,
                   uint8_t *to);                 /* NULL: codes need no unpacking
                                                  */
    void (*tile)(const int8_piece *p, int rows); /* of bytes */
    void (*words)(const int8_piece *p, int rows);
    int rows, word_rows; /* maximum rows of such tiles */
} int8_form;

static int8_form form_of(int bits, int64_t block) {
    int8_form f = {.row = bits == 2   ? row2
                          : bits == 4 ? row4
                          : ENDS      ? NULL
                                      : row8,
                   .unpack = bits == 2         ? unpack2
                             : bits == 4       ? unpack4
                             : WORDS_ARE_BYTES ? NULL
                                               : unpack8,
                   .tile = block == 32   ? tile_bytes32
                           : block == 16 ? tile_bytes16
                                         : tile_bytes,
                   .rows = TILE_ROWS,
                   .words = tile_words8,
                   .word_rows = WORD_ROWS};
    if (bits == 4)
        f.words = block == 32 ? tile_words4_32 : block == 16 ? tile_words4_16 : tile_words4;
    else if (bits == 2) /* no block of 16 exists */
        f.words = block == 32 ? tile_words2_32 : tile_words2;
    else if (ENDS) {
        f.tile = tile_halves;
        f.rows = f.word_rows = TILE_ROWS / 2;
    }
    return f;
}

/* What is prefetched while a piece is computed. */
typedef struct int8_ahead {
    ahead codes, scales;
} int8_ahead;

/* Divides rows into tiles of nearly equal height: 7 rows are 4 + 3. Advances *p instead of copying
 * it, for the reason at ahead_open_part. */
static void int8_panel(const int8_form *f, int8_piece *p, const int8_ahead *next, int64_t words,
                       int64_t count, cpu_nbits_scratch *scratch) {
    if (count == 1 && f->row) {
        f->row(p);
        return;
    }
    const bool cuts = f->unpack && count < UNPACK_ROWS;
    const int64_t most = cuts ? f->word_rows : f->rows, tiles = (count + most - 1) / most;
    const uint8_t *codes = p->codes;
    const int8_t *qa = p->qa;
    const float *scale = p->scale;
    const int32_t *sum = p->sum;
    for (int i = 0; i < PARTS; i++) {
        p->codes = codes + i * WIDTH * 4;
        p->qa = qa;
        p->scale = scale;
        p->sum = sum;
        p->y = scratch->y + i * WIDTH;
        if (f->unpack && !cuts) {
            f->unpack(p->codes, words, scratch->bytes);
            p->codes = scratch->bytes;
        }
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t rows = count / tiles + (t < count % tiles);
            ahead_open_part(&p->next_codes, &next->codes, i * tiles + t, PARTS * tiles, words);
            ahead_open_part(&p->next_scales, &next->scales, i * tiles + t, PARTS * tiles,
                            p->blocks);
            (cuts ? f->words : f->tile)(p, (int)rows);
            p->qa += rows * p->length;
            p->scale += rows;
            p->sum += rows;
            p->y += rows * NBITS_COLUMNS;
        }
        p->scales += WIDTH;
        p->zeros = p->zeros ? p->zeros + WIDTH : NULL;
    }
}

/* How many k in advance codes and scales are prefetched. If several tiles read a piece, it is a
 * whole piece, so that all of it is in the cache when the first tile begins. One tile reads a piece
 * as fast as it is prefetched; then fewer are better, because they fit in the first-level cache. */
static int64_t k_ahead(const int8_form *f, int64_t count) {
    return PARTS == 1 && count <= f->word_rows ? SOON : GQAC_K_PIECE;
}

/* The negative zero point, in each half of a lane. */
static int32_t zero_pair(int zero) {
    return (int32_t)(0x10001u * ((uint32_t)-zero & 0xffffu));
}

static void int8(const cpu_nbits_weights *w, int64_t panel, const cpu_nbits_rows *a, int64_t first,
                 int64_t count, cpu_nbits_scratch *scratch) {
    const nbits_shape *s = &w->shape;
    const int64_t padded = s->blocks * s->block;
    const int8_form f = form_of(s->bits, s->block);
    const int64_t far = k_ahead(&f, count);
    for (int64_t k = 0; k < padded; k += GQAC_K_PIECE) {
        const int64_t length = padded - k < GQAC_K_PIECE ? padded - k : GQAC_K_PIECE;
        const int64_t block = k / s->block, at = (panel * s->blocks + block) * NBITS_COLUMNS;
        const int64_t word = k * s->bits / 32, words = length * s->bits / 32;
        int8_piece p = {.codes = w->codes + (panel * s->words + word) * NBITS_WORD_BYTES,
                        .zeros = w->zeros ? scratch->zero_codes : NULL,
                        .qa = a->qa + k * a->rows + first * length,
                        .scale = a->scale + block * a->rows + first,
                        .sum = a->sum + block * a->rows + first,
                        .y = scratch->y,
                        .length = length,
                        .rows = a->rows,
                        .block = s->block,
                        .blocks = length / s->block,
                        .zero = zero_pair(1 << (s->bits - 1)),
                        .first = k == 0};
        p.scales = rows_as_f32(w->scales, w->scale_type, at, p.blocks, scratch->scales);
        const int64_t fp32_scales = w->scale_type == GQAC_F32 ? p.blocks * NBITS_COLUMNS : 0;
        const int8_ahead next = {
            ahead_of(p.codes + far * s->bits / 32 * NBITS_WORD_BYTES, words * NBITS_WORD_BYTES),
            ahead_of(p.scales + far / s->block * NBITS_COLUMNS,
                     fp32_scales * (int64_t)sizeof(float))};
        for (int64_t i = 0; w->zeros && i < p.blocks * NBITS_COLUMNS; i++)
            scratch->zero_codes[i] =
                zero_pair(((const uint8_t *)w->zeros)[at + i] & ((1 << s->bits) - 1));
        int8_panel(&f, &p, &next, words, count, scratch);
    }
}

/* ---- int8 and fp32 -------------------------------------------------------------------- */

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
    .quantise = quantise, .int8 = int8, .fp32 = CPU_NAME(nbits_fp32), .finish = finish};
