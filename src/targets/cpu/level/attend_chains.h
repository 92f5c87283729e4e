/* The micro kernel of attention: a tile of rows and vectors whose sums stay in registers, for
 * scores (sums over the elements of a head) and for weighing values (sums over keys). See
 * attend.c. */
#ifndef GQAC_TARGETS_CPU_LEVEL_ATTEND_CHAINS_H
#define GQAC_TARGETS_CPU_LEVEL_ATTEND_CHAINS_H

#include "targets/cpu/level/widen.h"

enum {
    KEYS = CPU_ATTEND_KEYS,
    QUERY = CPU_ATTEND_SIZE + 16, /* floats between queries; not a power of two */
    MOST = 6,                     /* maximum tile rows */
};

/* Vectors of a tile with mr rows, all in registers. */
#define NB(mr) (V16_REGISTERS >= 32 ? 4 : (mr) == 1 ? 4 : (mr) == 2 ? 2 : 1)

/* Memory to prefetch while a kernel processes as many elements. A processor drops prefetches when
 * too many are in flight, and a kernel is faster than memory, so each line is prefetched a second
 * time, nearer to its use. */
typedef struct ahead {
    const char *at;    /* NULL: none */
    const char *again; /* memory that was already prefetched once, and is read next */
    int line;          /* bytes of 16 elements */
} ahead;

static const ahead nothing = {NULL, NULL, 0};

/* The cache to prefetch to: the second level. With AVX-512 on Zen 4, decode steps take 0.7 to 0.8
 * times as long as with the first level, and on Zen 5 as long. */
enum { LOCALITY = 2 };

/* How elements are stored. Codes represent code * scale, see codes.h; those of FORM_K8 and FORM_K4
 * have a scale for each key. */
typedef enum form { FORM_F32, FORM_F16, FORM_BF16, FORM_I8, FORM_I4, FORM_K8, FORM_K4, FORMS } form;

/* A block of keys stored as columns, or of values stored as rows. */
typedef struct stored {
    const void *at;
    form form;
    const float *scale; /* scales of codes: that of channel d is at d * scale_step, or of key i at
                           i */
    int scale_step;
} stored;

/* Sixteen elements, from element `at` on, of row i of a matrix whose rows are channels (keys) or
 * keys (values); codes without their scales. A byte of 4-bit codes holds two channels of a key in
 * columns, and two adjacent channels in rows. */
VEC_FN v16 load_form(const form form, const bool keys, const void *b, int64_t at, int i) {
    if (form == FORM_I8 || form == FORM_K8)
        return v16_load_i8((const int8_t *)b + at);
    const bool nibbles = form == FORM_I4 || form == FORM_K4;
    if (nibbles && keys)
        return v16_load_i4((const uint8_t *)b + at - (i + 1) / 2 * KEYS, i % 2);
    if (nibbles)
        return v16_load_i4_pairs((const uint8_t *)b + at / 2);
    return load_as(form == FORM_F32 ? GQAC_F32 : form == FORM_F16 ? GQAC_F16 : GQAC_BF16, b, at);
}

/* Vectors of elements in a cache line. */
#define PER_LINE(form)                                                                             \
    ((form) == FORM_F32                          ? 1                                               \
     : (form) == FORM_F16 || (form) == FORM_BF16 ? 2                                               \
     : (form) == FORM_I4 || (form) == FORM_K4    ? 8                                               \
                                                 : 4)

/* c[r][0 .. 16 nb) = (c[r] * alpha[r], or 0) + sum over i < n of a[r * rs + i] * b[i][..], one
 * chain each, ascending; b[i][..] begins at element `at` + i * ldb. A scale of a channel belongs to
 * one i for keys, and to one lane for values; for scales of keys it is the other way round. */
VEC_FN void chains(const form form, const bool keys, const int mr, const int nb, const int rs,
                   int n, const float *a, const stored *b, int64_t at, int channel, int ldb,
                   float *c, int ldc, const float *alpha, ahead next) {
    const bool codes = form >= FORM_I8, of_keys = form >= FORM_K8, each = codes && keys != of_keys;
    const float *scale = !codes    ? NULL
                         : of_keys ? b->scale + (keys ? at : 0)
                                   : b->scale + channel * b->scale_step;
    const int step = of_keys ? 1 : b->scale_step;
    v16 acc[MOST][4], s[4];
    UNROLL(8) for (int t = 0; t < nb; t++) {
        s[t] = v16_zero();
        if (codes && !each)
            s[t] = step ? v16_load(scale + 16 * t) : v16_set1(scale[0]);
    }
    UNROLL(8) for (int r = 0; r < mr; r++) {
        UNROLL(8)
        for (int t = 0; t < nb; t++)
            acc[r][t] =
                alpha ? v16_mul(v16_load(c + r * ldc + 16 * t), v16_set1(alpha[r])) : v16_zero();
    }
    UNROLL(2) for (int i = 0; i < n; i++) {
        v16 x[4];
        if (each) {
            s[0] = v16_set1(*scale);
            scale += step;
        }
        UNROLL(8) for (int t = 0; t < nb; t++) {
            x[t] = load_form(form, keys, b->at, at + 16 * t, i);
            x[t] = codes ? v16_mul(x[t], s[each ? 0 : t]) : x[t];
        }
        UNROLL(8) for (int r = 0; r < mr; r++) {
            const v16 y = v16_set1(a[r * rs]);
            UNROLL(8) for (int t = 0; t < nb; t++) acc[r][t] = v16_fma(y, x[t], acc[r][t]);
        }
        if (next.at) {
            UNROLL(8)
            for (int t = 0; t < nb; t++)
                if ((i * nb + t) % PER_LINE(form) == 0) {
                    __builtin_prefetch(next.again + next.line * t, 0, LOCALITY);
                    __builtin_prefetch(next.at + next.line * t, 0, LOCALITY);
                }
            next.at += next.line * nb;
            next.again += next.line * nb;
        }
        a++;
        at += ldb;
    }
    UNROLL(8) for (int r = 0; r < mr; r++) {
        UNROLL(8) for (int t = 0; t < nb; t++) v16_store(c + r * ldc + 16 * t, acc[r][t]);
    }
}

/* All vectors [from, to) of a row of b. */
#define VECTORS(form, keys, mr, rs, alpha)                                                         \
    int t = from;                                                                                  \
    for (; t + NB(mr) <= to; t += NB(mr)) {                                                        \
        const ptrdiff_t before = (ptrdiff_t)next.line * n * (t - from);                            \
        const ahead part = {next.at + before, next.again + before, next.line};                     \
        if (next.at)                                                                               \
            chains(form, keys, mr, NB(mr), rs, n, a, b, at + 16 * t, keys ? 0 : 16 * t, ldb,       \
                   c + 16 * t, ldc, alpha, part);                                                  \
        else                                                                                       \
            chains(form, keys, mr, NB(mr), rs, n, a, b, at + 16 * t, keys ? 0 : 16 * t, ldb,       \
                   c + 16 * t, ldc, alpha, nothing);                                               \
    }                                                                                              \
    for (; t < to; t++)                                                                            \
    chains(form, keys, mr, 1, rs, n, a, b, at + 16 * t, keys ? 0 : 16 * t, ldb, c + 16 * t, ldc,   \
           alpha, nothing)

/* Called for a number of groups of mr rows. score: c [mr][KEYS] = sums over the n elements of
 * queries a [mr][QUERY]. weigh: adds n keys to c [mr][ldc], with weights a [mr][KEYS]; the first
 * value is at element `at`. The memory that is read next is prefetched during the first group. */
typedef void score_kernel(int groups, int n, const float *a, const stored *b, int from, int to,
                          float *c, ahead next);
typedef void weigh_kernel(int groups, int n, const float *a, const stored *b, int64_t at, int ldb,
                          float *c, const float *alpha, ahead next);
#define ROW_KERNELS(name, form, mr)                                                                \
    static void score_##name##_##mr(int groups, int n, const float *a, const stored *b, int from,  \
                                    int to, float *c, ahead next) {                                \
        enum { at = 0, ldb = KEYS, ldc = KEYS };                                                   \
        for (; groups > 0; groups--, a += mr * QUERY, c += mr * ldc, next = nothing) {             \
            VECTORS(form, true, mr, QUERY, NULL);                                                  \
        }                                                                                          \
    }                                                                                              \
    static void weigh_##name##_##mr(int groups, int n, const float *a, const stored *b,            \
                                    int64_t at, int ldb, float *c, const float *alpha,             \
                                    ahead next) {                                                  \
        const int from = 0, to = ldb / 16, ldc = ldb;                                              \
        for (; groups > 0; groups--, a += mr * KEYS, c += mr * ldc, alpha += mr, next = nothing) { \
            VECTORS(form, false, mr, KEYS, alpha);                                                 \
        }                                                                                          \
    }
#define KERNELS(name, form)                                                                        \
    ROW_KERNELS(name, form, 1)                                                                     \
    ROW_KERNELS(name, form, 2)                                                                     \
    ROW_KERNELS(name, form, 3)                                                                     \
    ROW_KERNELS(name, form, 4)                                                                     \
    ROW_KERNELS(name, form, 5)                                                                     \
    ROW_KERNELS(name, form, 6)
KERNELS(f32, FORM_F32)
KERNELS(f16, FORM_F16)
KERNELS(bf16, FORM_BF16)
KERNELS(i8, FORM_I8)
KERNELS(i4, FORM_I4)
KERNELS(k8, FORM_K8)
KERNELS(k4, FORM_K4)

#define BY_ROWS(name)                                                                              \
    { NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 }
static score_kernel *const scores[FORMS][MOST + 1] = {
    [FORM_F32] = BY_ROWS(score_f32),   [FORM_F16] = BY_ROWS(score_f16),
    [FORM_BF16] = BY_ROWS(score_bf16), [FORM_I8] = BY_ROWS(score_i8),
    [FORM_I4] = BY_ROWS(score_i4),     [FORM_K8] = BY_ROWS(score_k8),
    [FORM_K4] = BY_ROWS(score_k4)};
static weigh_kernel *const weighs[FORMS][MOST + 1] = {
    [FORM_F32] = BY_ROWS(weigh_f32),   [FORM_F16] = BY_ROWS(weigh_f16),
    [FORM_BF16] = BY_ROWS(weigh_bf16), [FORM_I8] = BY_ROWS(weigh_i8),
    [FORM_I4] = BY_ROWS(weigh_i4),     [FORM_K8] = BY_ROWS(weigh_k8),
    [FORM_K4] = BY_ROWS(weigh_k4)};

/* Rows or columns of a head, as a block of the cache stores them. */
static inline stored as_stored(const cpu_attend_rows *rows, int64_t head, const void *block) {
    if (rows->scales_at)
        return (stored){.at = block,
                        .form = rows->bits == 4 ? FORM_K4 : FORM_K8,
                        .scale = key_scales(rows, head, block)};
    const form form = rows->bits == 8           ? FORM_I8
                      : rows->bits == 4         ? FORM_I4
                      : rows->dtype == GQAC_F32 ? FORM_F32
                      : rows->dtype == GQAC_F16 ? FORM_F16
                                                : FORM_BF16;
    return (stored){block, form, rows->bits ? scales_of(rows, head) : NULL, rows->scale_step};
}

static inline stored as_fp32(const float *at) {
    return (stored){.at = at, .form = FORM_F32};
}

/* The scores of any number of rows. */
static inline void score(int rows, int n, const float *a, stored keys, int from, int to, float *c,
                         ahead next) {
    const int whole = rows / MOST * MOST;
    if (whole)
        scores[keys.form][MOST](whole / MOST, n, a, &keys, from, to, c, next);
    if (rows > whole)
        scores[keys.form][rows - whole](1, n, a + whole * QUERY, &keys, from, to, c + whole * KEYS,
                                        whole ? nothing : next);
}

static inline void weigh(int rows, int n, const float *a, stored values, int64_t at, int ldb,
                         float *c, const float *alpha, ahead next) {
    const int whole = rows / MOST * MOST;
    if (values.form >= FORM_K8)
        values.scale += at / ldb; /* of the first key */
    if (whole)
        weighs[values.form][MOST](whole / MOST, n, a, &values, at, ldb, c, alpha, next);
    if (rows > whole)
        weighs[values.form][rows - whole](1, n, a + whole * KEYS, &values, at, ldb, c + whole * ldb,
                                          alpha + whole, whole ? nothing : next);
}

#endif
