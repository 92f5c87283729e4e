/* y [rows,n] = x [rows,k] w (+ bias [n]) in products of bf16 factors, w in panels of pairs
 * [ceil(k/2)][64], or as codes of linear_nbits.
 *
 * Each element is gqn_dot_pairs: k in pieces of GQAC_K_PIECE; in a piece one chain over pairs of k,
 * ascending, the odd product first, from zero; pieces are added in ascending order, the first
 * starts the sum; then + bias, and one rounding to the type of y. A factor after the last k is
 * zero, and adds nothing to a chain, which is never -0. The division into tiles changes no bit.
 *
 * A unit loops over pieces of k: x is converted to words of two factors, and codes to pairs of
 * factors (code - zero point) * scale; then each panel is computed tile by tile. */
#include "targets/cpu/linear.h"

#include "ops/panels.h"
#include "targets/cpu/level/ahead.h"
#include "targets/cpu/level/level.h"
#include "targets/cpu/level/pairs.h"
#include "targets/cpu/level/row_math.h"
#include "targets/cpu/level/widen.h"
#include "targets/cpu/nbits.h"

enum {
    NATIVE = V16P_NATIVE,
    TILE_ROWS = NATIVE ? 6 : 5,
    ROW_BLOCK = 96, /* whole tiles of 6 rows */
    PANEL_GROUP = V16_REGISTERS >= 32 ? 8 : 4,
    WORDS = GQAC_K_PIECE / 2, /* words of a piece */
    FEW = 11,                 /* maximum rows for which reading weights takes longer than the
                                 arithmetic */
    CHUNK = 64,               /* words of a panel that few rows read while it is in the first-level
                                 cache */
    CHUNK_AHEAD = CHUNK,      /* a panel is prefetched this many words before its use */
    SPLIT_ROWS = FEW + 1,     /* from this number of rows on, at levels without an instruction for
                                 pairs, pairs are widened once */
    SPLIT_MOST = 6,           /* maximum rows of a tile in this case */
};
_Static_assert(GQAC_K_PIECE % 2 == 0, "pieces hold whole pairs");

/* Vectors of a tile: enough chains to hide the latency of a product, within the number of
 * registers. */
#define VECTORS(rows) (V16_REGISTERS >= 32 || (rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)

/* Scratch of a unit. */
typedef struct unit_scratch {
    float *sum;      /* [rows][panels * 64] */
    uint32_t *x;     /* [rows][WORDS] */
    uint32_t *pairs; /* [WORDS][64], of codes */
    float *split_x;  /* [rows][GQAC_K_PIECE] */
    float *split_w;  /* [GQAC_K_PIECE][64] */
} unit_scratch;

/* One piece of one panel. */
typedef struct piece {
    const uint32_t *x;              /* [rows][WORDS] */
    const uint32_t *w;              /* [words][64] */
    const float *split_x, *split_w; /* as fp32: the odd factor of a pair, then the even */
    const uint32_t *next; /* memory that is read after w, for few rows; NULL: none, or codes */
    int rows, words;
    bool first;
    float *sum; /* [rows][64], lds apart */
    int64_t lds;
} piece;

/* One word of k. Rows or columns, whichever are fewer, are kept in registers. */
VEC_FN void step_rows(v16 acc[TILE_ROWS][4], const uint32_t *x, const uint32_t *w, const int rows,
                      const int vectors) {
    v16p b[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        b[v] = v16p_load(w + 16 * v);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        const v16p a = v16p_spread(x + r * WORDS);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[r][v] = v16p_dot(acc[r][v], a, b[v]);
    }
}
VEC_FN void step_columns(v16 acc[TILE_ROWS][4], const uint32_t *x, const uint32_t *w,
                         const int rows, const int vectors) {
    v16p a[2];
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
        a[r] = v16p_spread(x + r * WORDS);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const v16p b = v16p_load(w + 16 * v);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            acc[r][v] = v16p_dot(acc[r][v], a[r], b);
    }
}

VEC_FN void add_piece(const piece *p, v16 acc[][4], int row, int column, const int rows,
                      const int vectors) {
    float *sum = p->sum + row * p->lds + column;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            float *s = sum + r * p->lds + 16 * v;
            v16_store(s, p->first ? acc[r][v] : v16_add(v16_load(s), acc[r][v]));
        }
}

VEC_FN void clear(v16 acc[][4], const int rows, const int vectors) {
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[r][v] = v16_zero();
}

VEC_FN void tile(const piece *p, int row, int column, const int rows, const int vectors) {
    v16 acc[TILE_ROWS][4];
    const uint32_t *x = p->x + row * WORDS, *w = p->w + column;
    clear(acc, rows, vectors);
    for (int i = 0; i < p->words; i++, w += LINEAR_PANEL)
        if (rows > 2)
            step_rows(acc, x + i, w, rows, vectors);
        else
            step_columns(acc, x + i, w, rows, vectors);
    add_piece(p, acc, row, column, rows, vectors);
}

#define TILE(r)                                                                                    \
    static void tile_##r(const piece *p, int row, int column) {                                    \
        tile(p, row, column, r, VECTORS(r));                                                       \
    }
TILE(1)
#if V16P_NATIVE
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
#endif

static void (*const tiles[])(const piece *p, int row, int column) = {
    NULL,   tile_1,
#if V16P_NATIVE
    tile_2, tile_3, tile_4, tile_5, tile_6,
#endif
};

/* ---- few rows ------------------------------------------------------------- */

/* The sum plus the products of a word of a row and b. */
VEC_FN v16 add_word(v16 sum, const piece *p, int row, int word, v16p b) {
#if V16P_NATIVE
    return v16p_dot(sum, v16p_spread(p->x + row * WORDS + word), b);
#else
    const float *x = p->split_x + row * GQAC_K_PIECE + 2 * word;
    return v16_fma(v16_set1(x[1]), b.even, v16_fma(v16_set1(x[0]), b.odd, sum));
#endif
}

/* Continues the chains over CHUNK words from `word` on; between chunks the sums are stored in `acc`
 * [rows][64]. */
VEC_FN void few_tile(const piece *p, float *acc, int row, int word, ahead next, const int rows,
                     const int vectors) {
    const int end = p->words - word < CHUNK ? p->words : word + CHUNK;
    for (int column = 0; column < LINEAR_PANEL; column += 16 * vectors) {
        v16 a[TILE_ROWS][4];
        float *at = acc + row * LINEAR_PANEL + column;
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                a[r][v] = word ? v16_load(at + r * LINEAR_PANEL + 16 * v) : v16_zero();
        for (int i = word; i < end; i++) {
            v16p b[4];
            ahead_step(&next);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                b[v] = v16p_load(p->w + (int64_t)i * LINEAR_PANEL + column + 16 * v);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    a[r][v] = add_word(a[r][v], p, row + r, i, b[v]);
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                v16_store(at + r * LINEAR_PANEL + 16 * v, a[r][v]);
    }
}

#define FEW_TILE(r)                                                                                \
    case r:                                                                                        \
        if (r <= TILE_ROWS)                                                                        \
            few_tile(p, acc, row, word, next, r <= TILE_ROWS ? r : 1, VECTORS(r));                 \
        break
static void run_few_tile(const piece *p, float *acc, int row, int rows, int word, ahead next) {
    switch (rows) {
        FEW_TILE(2);
        FEW_TILE(3);
        FEW_TILE(4);
        FEW_TILE(5);
        FEW_TILE(6);
    }
}

/* Each chunk of a panel is read once, for all rows. */
static void run_few(const piece *p) {
    enum { LINE_OF_WORDS = LINEAR_PANEL * (int)sizeof(uint32_t) };
    float acc[FEW * LINEAR_PANEL];
    const int groups = (p->rows + TILE_ROWS - 1) / TILE_ROWS;
    const int least = p->rows / groups, more = p->rows % groups;
    for (int word = 0; word < p->words; word += CHUNK) {
        const int64_t at = word + CHUNK_AHEAD, beyond = at - p->words;
        const uint32_t *from = beyond < 0 ? p->w + at * LINEAR_PANEL
                               : p->next  ? p->next + beyond * LINEAR_PANEL
                                          : NULL;
        const ahead next = ahead_of(from, from ? CHUNK * LINE_OF_WORDS : 0);
        for (int g = 0, row = 0; g < groups; g++) {
            const int rows = least + (g < more);
            run_few_tile(p, acc, row, rows, word,
                         ahead_part(next, g, groups, CHUNK * LINEAR_PANEL / 16 / VECTORS(rows)));
            row += rows;
        }
    }
    for (int r = 0; r < p->rows; r++)
        for (int c = 0; c < LINEAR_PANEL; c += 16) {
            const v16 a = v16_load(acc + r * LINEAR_PANEL + c);
            float *s = p->sum + r * p->lds + c;
            v16_store(s, p->first ? a : v16_add(v16_load(s), a));
        }
}

/* ---- without the instruction: the same chains, over factors already in fp32 ---------- */

#define SPLIT_VECTORS (V16_REGISTERS >= 32 ? 4 : 1)

VEC_FN void split_tile(const piece *p, int row, int column, const int rows) {
    v16 acc[SPLIT_MOST][4];
    const float *x = p->split_x + row * GQAC_K_PIECE, *w = p->split_w + column;
    clear(acc, rows, SPLIT_VECTORS);
    for (int i = 0; i < 2 * p->words; i++, w += LINEAR_PANEL) {
        v16 b[4];
#pragma GCC unroll 4
        for (int v = 0; v < SPLIT_VECTORS; v++)
            b[v] = v16_load(w + 16 * v);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const v16 a = v16_set1(x[r * GQAC_K_PIECE + i]);
#pragma GCC unroll 4
            for (int v = 0; v < SPLIT_VECTORS; v++)
                acc[r][v] = v16_fma(a, b[v], acc[r][v]);
        }
    }
    add_piece(p, acc, row, column, rows, SPLIT_VECTORS);
}

/* Tiles of 4 to 6 rows; any number from SPLIT_ROWS on can be divided into these. */
static void run_split(const piece *p) {
    const int groups = (p->rows + SPLIT_MOST - 1) / SPLIT_MOST;
    const int least = p->rows / groups, more = p->rows % groups;
    for (int g = 0, row = 0; g < groups; g++) {
        const int rows = least + (g < more);
        for (int column = 0; column < LINEAR_PANEL; column += 16 * SPLIT_VECTORS)
            if (rows == 4)
                split_tile(p, row, column, 4);
            else if (rows == 5)
                split_tile(p, row, column, 5);
            else
                split_tile(p, row, column, 6);
        row += rows;
    }
}

static void split_rows(const unit_scratch *scratch, int rows, int words) {
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < words; i++) {
            const uint32_t word = scratch->x[r * WORDS + i];
            scratch->split_x[r * GQAC_K_PIECE + 2 * i] = gqn_as_f32(word & 0xffff0000u);
            scratch->split_x[r * GQAC_K_PIECE + 2 * i + 1] = gqn_as_f32(word << 16);
        }
}

static void split_panel(const uint32_t *pairs, int words, float *to) {
#if !V16P_NATIVE
    for (int i = 0; i < words; i++, pairs += LINEAR_PANEL, to += 2 * LINEAR_PANEL)
        for (int c = 0; c < LINEAR_PANEL; c += 16) {
            const v16p p = v16p_load(pairs + c);
            v16_store(to + c, p.odd);
            v16_store(to + LINEAR_PANEL + c, p.even);
        }
#else
    (void)pairs, (void)words, (void)to;
#endif
}

static bool splits(int64_t rows) {
    return !NATIVE && rows >= SPLIT_ROWS;
}
static bool few(int64_t rows) {
    return rows > 1 && rows <= FEW;
}

/* Divides rows into tiles of nearly equal height. */
static void run_piece(const piece *p) {
    const int groups = (p->rows + TILE_ROWS - 1) / TILE_ROWS;
    const int least = p->rows / groups, more = p->rows % groups;
    for (int g = 0, row = 0; g < groups; g++) {
        const int rows = least + (g < more);
        for (int column = 0; column < LINEAR_PANEL; column += 16 * VECTORS(rows))
            tiles[rows](p, row, column);
        row += rows;
    }
}

/* ---- operands and results ------------------------------------------------- */

/* Rounds rows of a piece of x to words; after an odd number of factors, the last one is zero. */
static void round_rows(const cpu_linear_job *job, const cpu_linear_unit *unit, int64_t k, int n_k,
                       uint32_t *words) {
    float some[GQAC_K_PIECE];
    for (int64_t r = 0; r < unit->rows; r++) {
        uint16_t *to = (uint16_t *)(words + r * WORDS);
        widen(job->dtype, job->x, (unit->row + r) * job->k + k, n_k, some);
#ifdef GQAC_CONTROL_BF16_BY_ROWS /* negative control: a single row is truncated, not rounded */
        for (int i = 0; job->rows == 1 && i < n_k; i++)
            some[i] = gqn_as_f32(gqn_as_u32(some[i]) & 0xffff0000u);
#endif
        for (int i = 0; i < n_k; i += 16)
            v16_put_factors(to + i, v16_load(some + i)); /* widen fills the last vector with
                                                            zeros */
    }
}

/* Converts a piece of a panel of codes to pairs: even k at to[..][0], odd k at to[..][1]. */
VEC_FN void expand_bits(const cpu_nbits_weights *w, int64_t panel, int64_t k, int n_k,
                        uint32_t *pairs, const int bits) {
    const int per = 32 / bits;
    const v16i mask = v16i_set1((1 << bits) - 1);
    for (int i = 0; i < n_k; i += per) {
        const int64_t word = (k + i) / per, block = (k + i) / w->shape.block;
        const uint8_t *codes = w->codes + (panel * w->shape.words + word) * NBITS_WORD_BYTES;
        const int64_t at = (panel * w->shape.blocks + block) * NBITS_COLUMNS;
        for (int c = 0; c < NBITS_COLUMNS; c += 16) {
            const v16i x = v16i_load(codes + c * 4);
            const v16 scale = load_as(w->scale_type, w->scales, at + c);
            v16 zero = v16_set1((float)(1 << (bits - 1)));
            if (w->zeros && w->zero_type == GQAC_U8) {
                float z[16];
                for (int l = 0; l < 16; l++)
                    z[l] = (float)(((const uint8_t *)w->zeros)[at + c + l] & ((1 << bits) - 1));
                zero = v16_load(z);
            } else if (w->zeros) {
                zero = load_as(w->zero_type, w->zeros, at + c);
            }
#pragma GCC unroll 8
            for (int j = 0; j < per; j += 2) {
                const int shift = 8 * (j % 4) + bits * (j / 4);
                const v16i even = v16i_and(shift ? v16i_shr(x, shift) : x, mask);
                const v16i odd = v16i_and(v16i_shr(x, shift + 8), mask);
                v16p_put(pairs + (i + j) / 2 * NBITS_COLUMNS + c,
                         v16_mul(v16_sub(v16_of_v16i(even), zero), scale),
                         v16_mul(v16_sub(v16_of_v16i(odd), zero), scale));
            }
        }
    }
}

static void expand(const cpu_nbits_weights *w, int64_t panel, int64_t k, int n_k, uint32_t *pairs) {
    if (w->shape.bits == 2)
        expand_bits(w, panel, k, n_k, pairs, 2);
    else if (w->shape.bits == 4)
        expand_bits(w, panel, k, n_k, pairs, 4);
    else
        expand_bits(w, panel, k, n_k, pairs, 8);
    for (int i = n_k / 2 * LINEAR_PANEL; n_k % 2 && i < n_k / 2 * LINEAR_PANEL + LINEAR_PANEL; i++)
        pairs[i] &= 0xffffu; /* after the last k */
}

/* y = sum (+ bias). */
static void store(const cpu_linear_job *job, const cpu_linear_unit *unit, const float *sum,
                  int64_t lds) {
    for (int64_t p = 0; p < unit->panels; p++) {
        const int64_t column = (unit->panel + p) * LINEAR_PANEL, left = job->n - column;
        const int count = left < LINEAR_PANEL ? (int)left : LINEAR_PANEL;
        float bias[LINEAR_PANEL] = {0};
        if (job->bias)
            widen(job->bias_dtype, job->bias, column, count, bias);
        for (int64_t r = 0; r < unit->rows; r++)
            for (int i = 0; i < count; i += 16) {
                const v16 s = v16_load(sum + r * lds + p * LINEAR_PANEL + i);
                row_store(job->y, job->dtype, (unit->row + r) * job->n + column + i,
                          job->bias ? v16_add(s, v16_load(bias + i)) : s,
                          count - i < 16 ? count - i : 16);
            }
    }
}

/* ---- a unit --------------------------------------------------------------- */

static unit_scratch scratch_of(const cpu_linear_job *job, void *memory) {
    const int64_t rows = job->rows < ROW_BLOCK ? job->rows : ROW_BLOCK;
    float *const sum = memory;
    uint32_t *const x = (uint32_t *)(void *)(sum + rows * PANEL_GROUP * LINEAR_PANEL);
    uint32_t *const pairs = x + rows * WORDS;
    float *const split = (float *)(void *)(pairs + WORDS * LINEAR_PANEL);
    return (unit_scratch){sum, x, pairs, split, split + rows * GQAC_K_PIECE};
}

static size_t scratch_bytes(const cpu_linear_job *job) {
    const size_t rows = job->rows < ROW_BLOCK ? (size_t)job->rows : ROW_BLOCK;
    const size_t split = NATIVE || rows == 1 ? 0
                         : splits(job->rows) ? (rows + LINEAR_PANEL) * GQAC_K_PIECE
                                             : rows * GQAC_K_PIECE;
    return (rows * (PANEL_GROUP * LINEAR_PANEL + WORDS) + WORDS * LINEAR_PANEL + split) *
           sizeof(float);
}

/* Sets the words of panel i in the piece. */
static void take_panel(const cpu_linear_job *job, const cpu_linear_unit *unit, int64_t k, int64_t i,
                       const unit_scratch *scratch, piece *p) {
    const int64_t words = linear_pairs(job->k) * LINEAR_PANEL, panel = unit->panel + i;
    p->next = NULL;
    p->w = scratch->pairs;
    if (job->codes) {
        expand(job->codes, panel, k, (int)(job->k - k < GQAC_K_PIECE ? job->k - k : GQAC_K_PIECE),
               scratch->pairs);
        return;
    }
    const uint32_t *first = (const uint32_t *)job->w + unit->panel * words + k / 2 * LINEAR_PANEL;
    p->w = first + i * words;
    if (i + 1 < unit->panels)
        p->next = p->w + words;
    else if (k + GQAC_K_PIECE < job->k)
        p->next = first + WORDS * LINEAR_PANEL;
}

static void run(const cpu_linear_job *job, const cpu_linear_unit *unit, void *memory) {
    const unit_scratch scratch = scratch_of(job, memory);
    const bool split = splits(unit->rows);
    piece p = {.x = scratch.x,
               .split_x = scratch.split_x,
               .split_w = scratch.split_w,
               .rows = (int)unit->rows,
               .lds = unit->panels * LINEAR_PANEL};
    for (int64_t k = 0; k < job->k; k += GQAC_K_PIECE) {
        const int n_k = (int)(job->k - k < GQAC_K_PIECE ? job->k - k : GQAC_K_PIECE);
        p.words = (int)linear_pairs(n_k);
        p.first = k == 0;
        round_rows(job, unit, k, n_k, scratch.x);
        if (!NATIVE && p.rows > 1)
            split_rows(&scratch, p.rows, p.words);
        for (int64_t i = 0; i < unit->panels; i++) {
            take_panel(job, unit, k, i, &scratch, &p);
            p.sum = scratch.sum + i * LINEAR_PANEL;
            if (few(p.rows)) {
                run_few(&p);
            } else if (split) {
                split_panel(p.w, p.words, scratch.split_w);
                run_split(&p);
            } else {
                run_piece(&p);
            }
        }
    }
    store(job, unit, scratch.sum, p.lds);
}

extern const struct cpu_linear_kernels CPU_NAME(cpu_linear_bf16);
const struct cpu_linear_kernels CPU_NAME(cpu_linear_bf16) = {
    .row_block = ROW_BLOCK,
    .panel_group = PANEL_GROUP,
    .scratch = scratch_bytes,
    .run = run,
};

/* ---- the guarantee of pairs.h ----------------------------------------------- */

static uint32_t next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state;
}

/* Sixteen pseudo-random words, with factors from 2^-7 to 2^9, of both signs. */
static void some_words(uint32_t *state, uint32_t *words) {
    for (int i = 0; i < 16; i++)
        words[i] = (next(state) >> 1 & 0x87ff87ffu) + 0x3c003c00u;
}

extern bool CPU_NAME(cpu_pairs_hold)(void);
bool CPU_NAME(cpu_pairs_hold)(void) {
    uint32_t state = 1, a[16], b[16];
    float sum[16] = {0}, got[16];
    for (int round = 0; round < 64; round++) {
        some_words(&state, a);
        some_words(&state, b);
        v16_store(got, v16p_dot(v16_load(sum), v16p_load(a), v16p_load(b)));
        for (int i = 0; i < 16; i++) {
            sum[i] = gqn_fma(gqn_bf16_to_f32((uint16_t)(a[i] >> 16)),
                             gqn_bf16_to_f32((uint16_t)(b[i] >> 16)), sum[i]);
            sum[i] =
                gqn_fma(gqn_bf16_to_f32((uint16_t)a[i]), gqn_bf16_to_f32((uint16_t)b[i]), sum[i]);
        }
        if (memcmp(got, sum, sizeof sum) != 0) /* NOLINT(*-memory-comparison,cert-*): the bits */
            return false;
    }
    return true;
}
