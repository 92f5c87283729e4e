/* Attention in products of bf16 factors (--math bf16): q k^T and p v for attend.c, which computes
 * everything in between. Formula, for one row; factors are gqn_bf16_factor of queries, keys, values
 * and weights p, products are those of pairs.h:
 *   - s_j = scale * (one chain over pairs of d, ascending, from zero)
 *   - in a tile: acc = acc * alpha, replaced by zero if it is below 2^-102; then one chain over
 *     pairs of keys, at even positions, ascending. In a pair, a key outside the row's visible range
 *     is a zero factor
 *
 * A chain starts with a multiple of 2^-126, as pairs.h requires: every float of at least 2^-102 is
 * one. The sum of the weights is taken before p is rounded. */
#ifndef GQAC_TARGETS_CPU_LEVEL_ATTEND_BF16_H
#define GQAC_TARGETS_CPU_LEVEL_ATTEND_BF16_H

#include "targets/cpu/level/pairs.h"

enum {
    PAIR_ROWS = V16P_NATIVE ? 6 : 4,            /* rows of a tile in registers */
    PAIR_VECTORS = V16_REGISTERS >= 32 ? 4 : 1, /* vectors of 16 columns of a tile */
    KEY_PAIRS = KEYS / 2,
};
_Static_assert((int)TILE % 2 == 0, "tiles hold whole pairs");

/* The factors, in words of two, in scratch. */
typedef struct pair_factors {
    uint32_t *q;      /* [ROWS][D/2] */
    uint32_t *k;      /* [D/2][KEYS] */
    uint32_t *p;      /* [ROWS][KEY_PAIRS] */
    uint32_t *v;      /* [KEY_PAIRS][padded] */
    uint32_t *edge;   /* [padded] */
    int size, padded; /* size: D / 2, rounded up; padded: as in work */
} pair_factors;

static size_t pair_layout(const cpu_attend *a, pair_factors *factors, float *base) {
    const size_t size = ((size_t)a->size + 1) / 2,
                 padded = (size_t)cpu_attend_padded(a->value_size);
    const size_t line = (size + 15) / 16 * 16; /* queries are rounded in whole vectors */
    const size_t sizes[] = {ROWS * line, size * KEYS, ROWS * KEY_PAIRS, KEY_PAIRS * padded, padded};
    size_t n = 0, at[5];
    for (int i = 0; i < 5; i++) {
        at[i] = n;
        n += (sizes[i] + 15) / 16 * 16;
    }
    if (factors) {
        uint32_t *words = (uint32_t *)(void *)base;
        *factors = (pair_factors){words + at[0], words + at[1], words + at[2], words + at[3],
                                  words + at[4], (int)line,     (int)padded};
    }
    return a->bf16 ? n : 0;
}

/* ---- the micro kernel ----------------------------------------------------- */

/* c[r][0 .. 16 nb) = (c[r], or 0) + sum over words i < n of a[r][i] * b[i][..]. */
VEC_FN void pair_chains(const int mr, const int nb, int n, const uint32_t *a, int lda,
                        const uint32_t *b, int ldb, float *c, int ldc, const bool goes_on) {
    v16 acc[PAIR_ROWS][4];
    UNROLL(8) for (int r = 0; r < mr; r++) {
        UNROLL(8)
        for (int t = 0; t < nb; t++)
            acc[r][t] = goes_on ? v16_load(c + r * ldc + 16 * t) : v16_zero();
    }
    for (int i = 0; i < n; i++) {
        v16p x[4];
        UNROLL(8) for (int t = 0; t < nb; t++) x[t] = v16p_load(b + i * ldb + 16 * t);
        UNROLL(8) for (int r = 0; r < mr; r++) {
            const v16p y = v16p_spread(a + r * lda + i);
            UNROLL(8) for (int t = 0; t < nb; t++) acc[r][t] = v16p_dot(acc[r][t], y, x[t]);
        }
    }
    UNROLL(8) for (int r = 0; r < mr; r++) {
        UNROLL(8) for (int t = 0; t < nb; t++) v16_store(c + r * ldc + 16 * t, acc[r][t]);
    }
}

/* Computes all vectors [from, to). */
#define PAIR_KERNEL(mr)                                                                            \
    static void pairs_##mr(int n, const uint32_t *a, int lda, const uint32_t *b, int ldb,          \
                           int from, int to, float *c, int ldc, bool goes_on) {                    \
        int t = from;                                                                              \
        for (; t + PAIR_VECTORS <= to; t += PAIR_VECTORS)                                          \
            if (goes_on)                                                                           \
                pair_chains(mr, PAIR_VECTORS, n, a, lda, b + 16 * t, ldb, c + 16 * t, ldc, true);  \
            else                                                                                   \
                pair_chains(mr, PAIR_VECTORS, n, a, lda, b + 16 * t, ldb, c + 16 * t, ldc, false); \
        for (; t < to; t++)                                                                        \
            pair_chains(mr, 1, n, a, lda, b + 16 * t, ldb, c + 16 * t, ldc, goes_on);              \
    }
PAIR_KERNEL(1)
PAIR_KERNEL(2)
PAIR_KERNEL(3)
PAIR_KERNEL(4)
#if V16P_NATIVE
PAIR_KERNEL(5)
PAIR_KERNEL(6)
#endif

static void (*const pair_kernels[PAIR_ROWS + 1])(int n, const uint32_t *a, int lda,
                                                 const uint32_t *b, int ldb, int from, int to,
                                                 float *c, int ldc, bool goes_on) = {
    NULL,    pairs_1, pairs_2, pairs_3, pairs_4,
#if V16P_NATIVE
    pairs_5, pairs_6,
#endif
};

/* ---- factors -------------------------------------------------------------- */

static void pair_queries(work *w, pair_factors *at) {
    const cpu_attend *a = w->a;
    float row[CPU_ATTEND_SIZE + 16] = {0}; /* after an odd number of elements there is a zero */
    for (int r = 0; r < w->u->rows; r++) {
        widen(a->q_dtype, a->q, query_at(w, r), a->size, row);
        for (int d = 0; d < a->size; d += 16)
            v16_put_factors((uint16_t *)(at->q + r * at->size) + d, v16_load(row + d));
    }
}

static void pair_keys(const work *w, pair_factors *at, const float *kt) {
    for (int d = 0; d < w->a->size; d += 2)
        for (int j = 0; j < KEYS; j += 16)
            v16p_put(at->k + d / 2 * KEYS + j, v16_load(kt + d * KEYS + j),
                     d + 1 < w->a->size ? v16_load(kt + (d + 1) * KEYS + j) : v16_zero());
}

/* Converts the values of the keys [from, to); other values are not read. */
static void pair_values(pair_factors *at, const float *v, int from, int to) {
    const int padded = at->padded;
    for (int j = from / 2 * 2; j < to; j += 2)
        for (int d = 0; d < padded; d += 16)
            v16p_put(at->v + j / 2 * padded + d,
                     j >= from ? v16_load(v + j * padded + d) : v16_zero(),
                     j + 1 < to ? v16_load(v + (j + 1) * padded + d) : v16_zero());
}

/* ---- scores and weighing -------------------------------------------------- */

static void pair_scores(work *w, const pair_factors *at, int64_t key) {
    int from = 0, to = KEYS;
    for (int r = 0; r < w->u->rows; r += PAIR_ROWS) {
        const int left = w->u->rows - r, n = left < PAIR_ROWS ? left : PAIR_ROWS;
        if (w->full || see_range(w, r, n, key, key, key + KEYS, &from, &to))
            pair_kernels[n]((w->a->size + 1) / 2, at->q + r * at->size, at->size, at->k, KEYS,
                            from / 16, (to + 15) / 16, w->s + r * KEYS, KEYS, false);
    }
}

/* Converts the keys and values of a block to factors, of which [from, to) are visible to some row,
 * and computes the scores. */
static void pair_block(work *w, pair_factors *at, int64_t key, const float *kt, const float *v,
                       int from, int to) {
    pair_keys(w, at, kt);
    pair_values(at, v, from, to);
    pair_scores(w, at, key);
}

/* Row r: converts the weights to factors, zero for keys that are not visible, and computes acc *
 * alpha. */
static void pair_weights(work *w, pair_factors *at, int r) {
    const int from = w->from[r], to = w->to[r];
    const v16 least = v16_set1(0x1p-102f), alpha = v16_set1(w->alpha[r]);
    float *acc = w->acc + r * w->padded;
    for (int j = from / 16 * 16; j < to; j += 16) {
        const v16 p = v16_load(w->s + r * KEYS + j);
        v16_put_factors((uint16_t *)(at->p + r * KEY_PAIRS) + j,
                        v16_select(m16_range(from - j, to - j), p, v16_zero()));
    }
    for (int d = 0; d < w->padded; d += 16) {
        const v16 x = v16_mul(v16_load(acc + d), alpha);
        v16_store(acc + d, v16_select(m16_greater(least, v16_abs(x)), v16_zero(), x));
    }
}

/* Adds the pairs [from, to) to n rows, from row r on. */
static void pair_take(work *w, const pair_factors *at, int r, int n, int from, int to) {
    if (from < to)
        pair_kernels[n](to - from, at->p + r * KEY_PAIRS + from, KEY_PAIRS,
                        at->v + from * at->padded, at->padded, 0, at->padded / 16,
                        w->acc + r * w->padded, w->padded, true);
}

/* Adds the half of a pair that `mask` selects to row r; the other key may have any value. */
static void pair_half(work *w, const pair_factors *at, int r, int pair, uint32_t mask) {
    for (int d = 0; d < at->padded; d++)
        at->edge[d] = at->v[pair * at->padded + d] & mask;
    pair_kernels[1](1, at->p + r * KEY_PAIRS + pair, KEY_PAIRS, at->edge, at->padded, 0,
                    at->padded / 16, w->acc + r * w->padded, w->padded, true);
}

/* Adds the keys [from, to) to row r. */
static void pair_row(work *w, const pair_factors *at, int r, int from, int to) {
    if (from >= to)
        return;
    if (from % 2)
        pair_half(w, at, r, from / 2, 0xffff0000u);
    pair_take(w, at, r, 1, (from + 1) / 2, to / 2);
    if (to % 2)
        pair_half(w, at, r, to / 2, 0x0000ffffu);
}

/* Adds pairs to n rows: pairs that are visible to all of these rows for all rows together, the keys
 * before and after them row by row. */
static void pair_group(work *w, const pair_factors *at, int r, int n) {
    int from = 0, to = KEYS;
    bool all = true;
    for (int i = r; i < r + n; i++) {
        from = w->from[i] > from ? w->from[i] : from;
        to = w->to[i] < to ? w->to[i] : to;
        all = all && w->from[i] < w->to[i];
    }
    from = (from + 1) / 2 * 2;
    to = to / 2 * 2;
    all = all && from < to;
    for (int i = r; i < r + n; i++)
        pair_row(w, at, i, w->from[i], all ? from : w->to[i]);
    if (!all)
        return;
    pair_take(w, at, r, n, from / 2, to / 2);
    for (int i = r; i < r + n; i++)
        pair_row(w, at, i, to, w->to[i]);
}

/* Adds a tile, whose weights are in w->s, to acc for all rows. */
static void pair_weigh(work *w, pair_factors *at) {
    for (int r = 0; r < w->u->rows; r += PAIR_ROWS) {
        const int left = w->u->rows - r, n = left < PAIR_ROWS ? left : PAIR_ROWS;
        for (int i = r; i < r + n; i++)
            if (w->from[i] < w->to[i])
                pair_weights(w, at, i);
        pair_group(w, at, r, n);
    }
}

#endif
