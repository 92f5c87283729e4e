/* The micro kernel of attention: a tile of rows and vectors whose sums stay in registers, for
 * scores (over the elements of a head) and for weighing (over keys). See attend.c. */
#ifndef GQAC_TARGETS_CPU_LEVEL_ATTEND_CHAINS_H
#define GQAC_TARGETS_CPU_LEVEL_ATTEND_CHAINS_H

#include "targets/cpu/attention.h"
#include "targets/cpu/level/level.h"

enum {
    KEYS = CPU_ATTEND_KEYS,
    QUERY = CPU_ATTEND_SIZE + 16, /* floats from one query to the next: no power of two */
    MOST = 6,                     /* rows of a micro kernel */
};

/* Vectors that mr rows keep in registers at once. */
#define NB(mr) (V16_REGISTERS >= 32 ? 4 : (mr) == 1 ? 4 : (mr) == 2 ? 2 : 1)

#define UNROLL _Pragma("GCC unroll 8")

/* c[r][0 .. 16 nb) = (c[r] * alpha[r], or 0) + sum over i < n of a[r * rs + i * ks] * b[i][..], one
 * chain each, ascending. `ahead`: memory to fetch, 64 nb bytes a step. */
VEC_FN void chains(const int mr, const int nb, const int rs, const int ks, int n, const float *a,
                   const float *b, int ldb, float *c, int ldc, const float *alpha,
                   const char *ahead) {
    v16 acc[MOST][4];
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int t = 0; t < nb; t++) acc[r][t] =
            alpha ? v16_mul(v16_load(c + r * ldc + 16 * t), v16_set1(alpha[r])) : v16_zero();
    }
    for (int i = 0; i < n; i++) {
        v16 x[4];
        UNROLL for (int t = 0; t < nb; t++) x[t] = v16_load(b + 16 * t);
        UNROLL for (int r = 0; r < mr; r++) {
            const v16 y = v16_set1(a[r * rs]);
            UNROLL for (int t = 0; t < nb; t++) acc[r][t] = v16_fma(y, x[t], acc[r][t]);
        }
        if (ahead) {
            UNROLL for (int t = 0; t < nb; t++) __builtin_prefetch(ahead + 64 * t, 0, 2);
            ahead += 64 * nb;
        }
        a += ks;
        b += ldb;
    }
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int t = 0; t < nb; t++) v16_store(c + r * ldc + 16 * t, acc[r][t]);
    }
}

/* All vectors [from, to) of a row of b. */
#define VECTORS(mr, rs, ks, alpha)                                                                 \
    int t = from;                                                                                  \
    for (; t + NB(mr) <= to; t += NB(mr))                                                          \
        if (ahead)                                                                                 \
            chains(mr, NB(mr), rs, ks, n, a, b + 16 * t, ldb, c + 16 * t, ldc, alpha,              \
                   ahead + (ptrdiff_t)64 * n * (t - from));                                        \
        else                                                                                       \
            chains(mr, NB(mr), rs, ks, n, a, b + 16 * t, ldb, c + 16 * t, ldc, alpha, NULL);       \
    for (; t < to; t++)                                                                            \
    chains(mr, 1, rs, ks, n, a, b + 16 * t, ldb, c + 16 * t, ldc, alpha, NULL)

/* score: c [mr][KEYS] = sums over the n elements of queries a [mr][QUERY]. weigh: c [mr][ldc] takes
 * n keys, with weights a [mr][KEYS]. */
#define ROW_KERNELS(mr)                                                                            \
    static void score_##mr(int n, const float *a, const float *b, int from, int to, float *c,      \
                           const char *ahead) {                                                    \
        enum { ldb = KEYS, ldc = KEYS };                                                           \
        VECTORS(mr, QUERY, 1, NULL);                                                               \
    }                                                                                              \
    static void weigh_##mr(int n, const float *a, const float *b, int ldb, int to, float *c,       \
                           const float *alpha, const char *ahead) {                                \
        const int from = 0, ldc = ldb;                                                             \
        VECTORS(mr, KEYS, 1, alpha);                                                               \
    }
ROW_KERNELS(1)
ROW_KERNELS(2)
ROW_KERNELS(3)
ROW_KERNELS(4)
ROW_KERNELS(5)
ROW_KERNELS(6)

static void (*const score[MOST + 1])(int n, const float *a, const float *b, int from, int to,
                                     float *c, const char *ahead) = {
    NULL, score_1, score_2, score_3, score_4, score_5, score_6};
static void (*const weigh[MOST + 1])(int n, const float *a, const float *b, int ldb, int to,
                                     float *c, const float *alpha, const char *ahead) = {
    NULL, weigh_1, weigh_2, weigh_3, weigh_4, weigh_5, weigh_6};

#endif
