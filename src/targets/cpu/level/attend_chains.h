/* The micro kernel of attention: a tile of rows and vectors whose sums stay in registers, for
 * scores (over the elements of a head) and for weighing (over keys). See attend.c. */
#ifndef GQAC_TARGETS_CPU_LEVEL_ATTEND_CHAINS_H
#define GQAC_TARGETS_CPU_LEVEL_ATTEND_CHAINS_H

#include "targets/cpu/level/widen.h"

enum {
    KEYS = CPU_ATTEND_KEYS,
    QUERY = CPU_ATTEND_SIZE + 16, /* floats from one query to the next: no power of two */
    MOST = 6,                     /* rows of a micro kernel */
};

/* Vectors that mr rows keep in registers at once. */
#define NB(mr) (V16_REGISTERS >= 32 ? 4 : (mr) == 1 ? 4 : (mr) == 2 ? 2 : 1)

#define UNROLL _Pragma("GCC unroll 8")

/* Memory to fetch while a kernel works on as many elements. */
typedef struct ahead {
    const char *at; /* NULL: none */
    int line;       /* bytes of 16 elements there */
} ahead;

static const ahead nothing = {NULL, 0};

/* A block of keys as columns, or of values as rows: elements of fp32, f16 or bf16. */
typedef struct stored {
    const void *at;
    gqac_dtype dtype;
} stored;

/* c[r][0 .. 16 nb) = (c[r] * alpha[r], or 0) + sum over i < n of a[r * rs + i * ks] * b[i][..], one
 * chain each, ascending; b[i][..] begins at element `at` + i * ldb. */
VEC_FN void chains(const gqac_dtype dtype, const int mr, const int nb, const int rs, const int ks,
                   int n, const float *a, const void *b, int64_t at, int ldb, float *c, int ldc,
                   const float *alpha, ahead next) {
    v16 acc[MOST][4];
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int t = 0; t < nb; t++) acc[r][t] =
            alpha ? v16_mul(v16_load(c + r * ldc + 16 * t), v16_set1(alpha[r])) : v16_zero();
    }
    for (int i = 0; i < n; i++) {
        v16 x[4];
        UNROLL for (int t = 0; t < nb; t++) x[t] = load_as(dtype, b, at + 16 * t);
        UNROLL for (int r = 0; r < mr; r++) {
            const v16 y = v16_set1(a[r * rs]);
            UNROLL for (int t = 0; t < nb; t++) acc[r][t] = v16_fma(y, x[t], acc[r][t]);
        }
        if (next.at) {
            UNROLL for (int t = 0; t < nb; t++) __builtin_prefetch(next.at + next.line * t, 0, 2);
            next.at += next.line * nb;
        }
        a += ks;
        at += ldb;
    }
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int t = 0; t < nb; t++) v16_store(c + r * ldc + 16 * t, acc[r][t]);
    }
}

/* All vectors [from, to) of a row of b. */
#define VECTORS(dtype, mr, rs, ks, alpha)                                                          \
    int t = from;                                                                                  \
    for (; t + NB(mr) <= to; t += NB(mr)) {                                                        \
        const ahead part = {next.at + (ptrdiff_t)next.line * n * (t - from), next.line};           \
        if (next.at)                                                                               \
            chains(dtype, mr, NB(mr), rs, ks, n, a, b, at + 16 * t, ldb, c + 16 * t, ldc, alpha,   \
                   part);                                                                          \
        else                                                                                       \
            chains(dtype, mr, NB(mr), rs, ks, n, a, b, at + 16 * t, ldb, c + 16 * t, ldc, alpha,   \
                   nothing);                                                                       \
    }                                                                                              \
    for (; t < to; t++)                                                                            \
    chains(dtype, mr, 1, rs, ks, n, a, b, at + 16 * t, ldb, c + 16 * t, ldc, alpha, nothing)

/* score: c [mr][KEYS] = sums over the n elements of queries a [mr][QUERY]. weigh: c [mr][ldc] takes
 * n keys, with weights a [mr][KEYS]; the first value is at element `at`. */
typedef void score_kernel(int n, const float *a, const void *b, int from, int to, float *c,
                          ahead next);
typedef void weigh_kernel(int n, const float *a, const void *b, int64_t at, int ldb, int to,
                          float *c, const float *alpha, ahead next);
#define ROW_KERNELS(name, dtype, mr)                                                               \
    static void score_##name##_##mr(int n, const float *a, const void *b, int from, int to,        \
                                    float *c, ahead next) {                                        \
        enum { at = 0, ldb = KEYS, ldc = KEYS };                                                   \
        VECTORS(dtype, mr, QUERY, 1, NULL);                                                        \
    }                                                                                              \
    static void weigh_##name##_##mr(int n, const float *a, const void *b, int64_t at, int ldb,     \
                                    int to, float *c, const float *alpha, ahead next) {            \
        const int from = 0, ldc = ldb;                                                             \
        VECTORS(dtype, mr, KEYS, 1, alpha);                                                        \
    }
#define KERNELS(name, dtype)                                                                       \
    ROW_KERNELS(name, dtype, 1)                                                                    \
    ROW_KERNELS(name, dtype, 2)                                                                    \
    ROW_KERNELS(name, dtype, 3)                                                                    \
    ROW_KERNELS(name, dtype, 4)                                                                    \
    ROW_KERNELS(name, dtype, 5)                                                                    \
    ROW_KERNELS(name, dtype, 6)
KERNELS(f32, GQAC_F32)
KERNELS(f16, GQAC_F16)
KERNELS(bf16, GQAC_BF16)

#define BY_ROWS(name)                                                                              \
    { NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 }
static score_kernel *const scores[][MOST + 1] = {BY_ROWS(score_f32), BY_ROWS(score_f16),
                                                 BY_ROWS(score_bf16)};
static weigh_kernel *const weighs[][MOST + 1] = {BY_ROWS(weigh_f32), BY_ROWS(weigh_f16),
                                                 BY_ROWS(weigh_bf16)};

static inline int form_of(gqac_dtype dtype) {
    return dtype == GQAC_F32 ? 0 : dtype == GQAC_F16 ? 1 : 2;
}

static inline void score(int rows, int n, const float *a, stored keys, int from, int to, float *c,
                         ahead next) {
    scores[form_of(keys.dtype)][rows](n, a, keys.at, from, to, c, next);
}

static inline void weigh(int rows, int n, const float *a, stored values, int64_t at, int ldb,
                         float *c, const float *alpha, ahead next) {
    weighs[form_of(values.dtype)][rows](n, a, values.at, at, ldb, ldb / 16, c, alpha, next);
}

#endif
