/* The contract's reductions as plain C: the definition that every kernel must match bit for bit.
 * A chain is one accumulator and one fma per element, ascending. A lane reduction has 16
 * accumulators: lane j adds elements j, j+16, j+32, …, and then folds 8, 4, 2, 1. Lanes start at +0
 * and so are never -0, which is why a kernel may pad the tail with zeros: the bits are the same.
 * Sums and chains propagate NaN, with any payload. */
#ifndef GQAC_NUMERICS_REDUCE_H
#define GQAC_NUMERICS_REDUCE_H

#include <stddef.h>

#include "contract.h"
#include "convert.h"
#include "dialect.h"
#include "math.h"

/* The sum over i < k of a[i*sa] * b[i*sb]. The sum starts with the value of the first piece, so for
 * k <= 512 it is one chain; for k = 0 it is 0. */
GQN_FN float gqn_dot_chain(const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t k) {
    float total = 0.0f;
    for (size_t start = 0; start < k; start += GQAC_K_PIECE) {
        size_t end = k - start < GQAC_K_PIECE ? k : start + GQAC_K_PIECE;
        float piece = 0.0f;
        for (size_t i = start; i < end; i++)
            piece = gqn_fma(a[(ptrdiff_t)i * sa], b[(ptrdiff_t)i * sb], piece);
        total = start == 0 ? piece : total + piece;
    }
    return total;
}

/* The same for bf16 factors (--math bf16): in a piece, pairs (i, i + 1) of even i, ascending; in a
 * pair, the odd product is added first. */
GQN_FN float gqn_dot_pairs(const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t k) {
    float total = 0.0f;
    for (size_t start = 0; start < k; start += GQAC_K_PIECE) {
        size_t end = k - start < GQAC_K_PIECE ? k : start + GQAC_K_PIECE;
        float piece = 0.0f;
        for (size_t i = start; i < end; i += 2)
            for (size_t j = i + 1 < end ? i + 2 : end; j-- > i;)
                piece = gqn_fma(gqn_bf16_to_f32(gqn_bf16_factor(a[(ptrdiff_t)j * sa])),
                                gqn_bf16_to_f32(gqn_bf16_factor(b[(ptrdiff_t)j * sb])), piece);
        total = start == 0 ? piece : total + piece;
    }
    return total;
}

/* A loop over the sixteen lanes. If it is not unrolled, compilers turn it into one vector
 * operation; if it is unrolled, into sixteen scalar ones. */
#define GQN_EACH_LANE(j, ...)                                                                      \
    do {                                                                                           \
        _Pragma("GCC unroll 1") for (size_t j = 0; j < GQAC_LANES; j++) {                          \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* lane[0..7] += lane[8..15], then 4, 2, 1. */
GQN_FN float gqn_lane_fold(float lane[static GQAC_LANES]) {
    for (size_t half = GQAC_LANES / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

GQN_FN float gqn_lane_sum(const float *x, size_t n) {
    float lane[GQAC_LANES] = {0};
    size_t i = 0;
    for (; i + GQAC_LANES <= n; i += GQAC_LANES)
        GQN_EACH_LANE(j, lane[j] += x[i + j]);
    for (size_t j = 0; i < n; i++, j++)
        lane[j] += x[i];
    return gqn_lane_fold(lane);
}

GQN_FN float gqn_lane_sum_abs(const float *x, size_t n) {
    float lane[GQAC_LANES] = {0};
    size_t i = 0;
    for (; i + GQAC_LANES <= n; i += GQAC_LANES)
        GQN_EACH_LANE(j, lane[j] += gqn_abs(x[i + j]));
    for (size_t j = 0; i < n; i++, j++)
        lane[j] += gqn_abs(x[i]);
    return gqn_lane_fold(lane);
}

/* The sum of x^2, each added by an fma. */
GQN_FN float gqn_lane_sum_sq(const float *x, size_t n) {
    float lane[GQAC_LANES] = {0};
    size_t i = 0;
    for (; i + GQAC_LANES <= n; i += GQAC_LANES)
        GQN_EACH_LANE(j, lane[j] = gqn_fma(x[i + j], x[i + j], lane[j]));
    for (size_t j = 0; i < n; i++, j++)
        lane[j] = gqn_fma(x[i], x[i], lane[j]);
    return gqn_lane_fold(lane);
}

/* The sum of (x - centre)^2: each difference is rounded, then squared and added by an fma; lanes
 * after the end add nothing. */
GQN_FN float gqn_lane_sum_sq_about(const float *x, size_t n, float centre) {
    float lane[GQAC_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        float d = x[i] - centre;
        lane[i % GQAC_LANES] = gqn_fma(d, d, lane[i % GQAC_LANES]);
    }
    return gqn_lane_fold(lane);
}

/* The only step of every maximum: x > m ? x : m. NaN elements are skipped (a softmax still
 * propagates NaN through its sum), and of +0 and -0 the first one is kept. The operands are in the
 * order of a single maxps(x, m). */
GQN_FN float gqn_max_step(float m, float x) {
    return x > m ? x : m;
}

/* Lanes after the end are -inf, which is also the maximum of no elements and of NaNs only. */
GQN_FN float gqn_lane_max(const float *x, size_t n) {
    float lane[GQAC_LANES];
    for (size_t j = 0; j < GQAC_LANES; j++)
        lane[j] = -gqn_as_f32(GQN_INF_BITS);
    size_t i = 0;
    for (; i + GQAC_LANES <= n; i += GQAC_LANES)
        GQN_EACH_LANE(j, lane[j] = gqn_max_step(lane[j], x[i + j]));
    for (size_t j = 0; i < n; i++, j++)
        lane[j] = gqn_max_step(lane[j], x[i]);
    for (size_t half = GQAC_LANES / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++)
            lane[j] = gqn_max_step(lane[j], lane[j + half]);
    return lane[0];
}

#endif
