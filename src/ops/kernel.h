/* Compiles a kernel body twice: for AVX2 with FMA, and for any machine, where fma calls the exact
 * function of libm. Both obey the numerics contract and so compute the same bits; the faster one
 * that the machine has is used. Bodies work on rows of floats with fixed inner trip counts, so that
 * the compiler vectorises them. */
#ifndef GQAC_OPS_KERNEL_H
#define GQAC_OPS_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "numerics/contract.h"
#include "numerics/dialect.h"

#define OP_BODY static inline __attribute__((always_inline))

#if defined(__x86_64__)
#define OP_FMA_LEVEL __attribute__((target("avx2,fma"), flatten))
static inline bool op_has_fma(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#define OP_FMA_LEVEL
static inline bool op_has_fma(void) {
    return false;
}
#endif

/* Defines `static void fn(declared parameters)` from `fn_body`. */
#define OP_KERNEL(fn, parameters, arguments)                                                       \
    OP_FMA_LEVEL static void fn##_fma parameters {                                                 \
        fn##_body arguments;                                                                       \
    }                                                                                              \
    static void fn##_any parameters {                                                              \
        fn##_body arguments;                                                                       \
    }                                                                                              \
    static void fn parameters {                                                                    \
        if (op_has_fma())                                                                          \
            fn##_fma arguments;                                                                    \
        else                                                                                       \
            fn##_any arguments;                                                                    \
    }

/* y[i] = fma(a, x[i], y[i]) for i < n. */
OP_BODY void op_axpy(float *restrict y, float a, const float *restrict x, int64_t n) {
    int64_t i = 0;
    for (; i + GQAC_LANES <= n; i += GQAC_LANES)
        for (int l = 0; l < GQAC_LANES; l++)
            y[i + l] = gqn_fma(a, x[i + l], y[i + l]);
    for (; i < n; i++)
        y[i] = gqn_fma(a, x[i], y[i]);
}

/* The same for four consecutive terms: one load and store of y instead of four. */
OP_BODY void op_axpy4(float *restrict y, const float a[4], const float *const x[4], int64_t n) {
    const float *restrict p = x[0], *restrict q = x[1], *restrict r = x[2], *restrict s = x[3];
    int64_t i = 0;
    for (; i + GQAC_LANES <= n; i += GQAC_LANES)
        for (int l = 0; l < GQAC_LANES; l++) {
            float v = gqn_fma(a[1], q[i + l], gqn_fma(a[0], p[i + l], y[i + l]));
            y[i + l] = gqn_fma(a[3], s[i + l], gqn_fma(a[2], r[i + l], v));
        }
    for (; i < n; i++) {
        float v = gqn_fma(a[1], q[i], gqn_fma(a[0], p[i], y[i]));
        y[i] = gqn_fma(a[3], s[i], gqn_fma(a[2], r[i], v));
    }
}

/* Replaces any NaN by the canonical one, because its bits depend on the instruction and the order
 * of operands. */
static inline float op_one_nan(float x) {
    return x != x ? gqn_as_f32(GQN_NAN_BITS) : x;
}

#endif
