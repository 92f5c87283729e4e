/* Sixteen fp32 lanes and the operations of kernels on them, for each level: one zmm, two ymm, or
 * plain C. Every operation is correctly rounded and returns the same bits on each level. NaN
 * payloads are the exception, so results that are stored for the user go through v16_one_nan. The
 * scalar form is the definition. A v16i has sixteen 32-bit integers, and an m16 one truth value for
 * each lane. */
#ifndef GQAC_TARGETS_CPU_LEVEL_VEC_H
#define GQAC_TARGETS_CPU_LEVEL_VEC_H

#include <stdint.h>
#include <string.h>

#include "numerics/contract.h"
#include "numerics/convert.h"
#include "numerics/dialect.h"

/* Plain C has no registers for such lanes: inlining and unrolling would only make compilation take
 * minutes. UNROLL(n) is written before a loop; with a sanitizer, gcc rejects it in some places. */
#if defined(__AVX2__)
#define VEC_FN static inline __attribute__((always_inline, unused))
#else
#define VEC_FN static inline __attribute__((unused))
#endif
#if defined(__AVX2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define UNROLL_(text) _Pragma(#text)
#define UNROLL(n)     UNROLL_(GCC unroll n)
#else
#define UNROLL(n)
#endif

#if defined(__AVX512F__)
#include "targets/cpu/level/vec_avx512.h"
#elif defined(__AVX2__)
#include "targets/cpu/level/vec_avx2.h"
#else
#include "targets/cpu/level/vec_scalar.h"
#endif

#if defined(__AVX2__)
VEC_FN v16 v16_load_i8(const int8_t *p) {
    return v16_of_i8(_mm_loadu_si128((const __m128i *)(const void *)p));
}
VEC_FN v16 v16_of_nibbles(__m128i b) {
    return v16_of_i8(_mm_sub_epi8(_mm_and_si128(b, _mm_set1_epi8(15)), _mm_set1_epi8(8)));
}
VEC_FN v16 v16_load_i4(const uint8_t *p, int high) {
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return v16_of_nibbles(_mm_srl_epi16(b, _mm_cvtsi32_si128(4 * high)));
}
VEC_FN v16 v16_load_i4_pairs(const uint8_t *p) {
    const __m128i w = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return v16_of_nibbles(_mm_or_si128(w, _mm_slli_epi16(w, 4)));
}
#endif

/* x with every NaN replaced by the canonical one. */
VEC_FN v16 v16_one_nan(v16 x) {
    return v16_select(m16_unordered(x), v16_set1(gqn_as_f32(GQN_NAN_BITS)), x);
}

/* The lanes from <= l < to. */
VEC_FN m16 m16_range(int from, int to) {
    const uint32_t below = to <= 0 ? 0u : to >= 16 ? 0xffffu : (1u << to) - 1u;
    const uint32_t before = from <= 0 ? 0u : from >= 16 ? 0xffffu : (1u << from) - 1u;
    return m16_of_bits(below & ~before);
}

/* The lane tree of the contract: folds 8, 4, 2, 1. */
VEC_FN float v16_fold(v16 x) {
    float lane[16];
    v16_store(lane, x);
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

VEC_FN float v16_fold_max(v16 x) {
    float lane[16];
    v16_store(lane, x);
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
    return lane[0];
}

/* gqn_exp_core in every lane (numerics/math.h has the polynomial). */
VEC_FN v16 v16_exp_core(v16 x) {
    const v16 magic = v16_set1(0x1.8p23f);
    const v16 t = v16_fma(x, v16_set1(0x1.715476p0f), magic);
    const v16 n = v16_sub(t, magic);
    v16 r = v16_fma(n, v16_set1(-0x1.62e4p-1f), x);
    r = v16_fma(n, v16_set1(-0x1.7f7d1cp-20f), r);
    v16 q = v16_set1(0x1.a2d442p-13f);
    q = v16_fma(q, r, v16_set1(0x1.6d30d2p-10f));
    q = v16_fma(q, r, v16_set1(0x1.110fc4p-7f));
    q = v16_fma(q, r, v16_set1(0x1.5555p-5f));
    q = v16_fma(q, r, v16_set1(0x1.555556p-3f));
    q = v16_fma(q, r, v16_set1(0.5f));
    const v16 p = v16_add(v16_fma(v16_mul(r, r), q, r), v16_set1(1.0f));
    return v16_scale_bits(p, t, magic);
}

/* gqn_expf in every lane. */
VEC_FN v16 v16_exp(v16 x) {
    const v16 least = v16_set1(-0x1.5d589ep6f), most = v16_set1(0x1.62e42ep6f);
    const m16 low = m16_greater(least, x), high = m16_greater(x, most);
    v16 c = v16_select(low, least, x);
    c = v16_select(high, most, c);
    v16 y = v16_exp_core(c);
    y = v16_select(low, v16_zero(), y);
    y = v16_select(high, v16_set1(gqn_as_f32(GQN_INF_BITS)), y);
    return v16_select(m16_unordered(x), v16_set1(gqn_as_f32(GQN_NAN_BITS)), y);
}

/* The same if x is not above 0, or is NaN. */
VEC_FN v16 v16_exp_low(v16 x) {
    const v16 least = v16_set1(-0x1.5d589ep6f);
    const v16 y =
        v16_select(m16_greater(least, x), v16_zero(), v16_exp_core(v16_max_step(least, x)));
    return v16_select(m16_unordered(x), v16_set1(gqn_as_f32(GQN_NAN_BITS)), y);
}

#endif
