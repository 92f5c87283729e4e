/* Products of bf16 factors (--math bf16). A word is a pair of factors, with the even index in its
 * low half and the odd index in its high half; a v16p is sixteen such pairs.
 *
 *   dot: sum = fma(a.odd, b.odd, sum), then sum = fma(a.even, b.even, sum), in each lane
 *
 * That is VDPBF16PS as Intel's manual defines it (SDM volume 2: odd half first, each accumulation
 * an FMA rounded to nearest even). The instruction also treats subnormals as zeros, which two FMAs
 * do not. So factors below GQAC_BF16_LEAST are replaced by zeros; then products and sums are
 * multiples of 2^-126, and subnormals do not occur. A sum at the start of a chain must be such a
 * multiple too. cpu_level.pairs_hold detects a machine whose instruction differs. */
#ifndef GQAC_TARGETS_CPU_LEVEL_PAIRS_H
#define GQAC_TARGETS_CPU_LEVEL_PAIRS_H

#include "targets/cpu/level/vec.h"

/* gqn_bf16_factor of every lane, in the high half of its 32 bits; the low half is zeros. */
#if defined(__AVX512F__)

VEC_FN __m512i v16_factor_bits(v16 x) {
    const __m512i u = _mm512_castps_si512(x);
    const __m512i last = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), last);
    const __m512i one = _mm512_mask_blend_epi32(m16_unordered(x), r, _mm512_set1_epi32(0x7fc00000));
    const m16 small = m16_greater(v16_set1(GQAC_BF16_LEAST), v16_abs(x));
    return _mm512_maskz_and_epi32((m16)~small, one, _mm512_set1_epi32((int)0xffff0000u));
}
/* Writes sixteen factors, one after another. */
VEC_FN void v16_put_factors(uint16_t *to, v16 x) {
    _mm256_storeu_si256((__m256i *)(void *)to,
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(v16_factor_bits(x), 16)));
}
/* Writes sixteen pairs of the factors of two vectors. */
VEC_FN void v16p_put(void *to, v16 even, v16 odd) {
    _mm512_storeu_si512(
        to, _mm512_or_si512(_mm512_srli_epi32(v16_factor_bits(even), 16), v16_factor_bits(odd)));
}

#elif defined(__AVX2__)

VEC_FN __m256i v8_factor_bits(__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), last);
    const __m256 one =
        _mm256_blendv_ps(_mm256_castsi256_ps(r), _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                         _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256 size = _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
    const __m256 kept = _mm256_cmp_ps(size, _mm256_set1_ps(GQAC_BF16_LEAST), _CMP_NLT_UQ);
    return _mm256_and_si256(_mm256_castps_si256(_mm256_and_ps(one, kept)),
                            _mm256_set1_epi32((int)0xffff0000u));
}
VEC_FN void v16_put_factors(uint16_t *to, v16 x) {
    const __m256i lo = _mm256_srli_epi32(v8_factor_bits(x.lo), 16);
    const __m256i hi = _mm256_srli_epi32(v8_factor_bits(x.hi), 16);
    _mm256_storeu_si256((__m256i *)(void *)to,
                        _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8));
}
VEC_FN void v16p_put(void *to, v16 even, v16 odd) {
    __m256i *at = to;
    _mm256_storeu_si256(at, _mm256_or_si256(_mm256_srli_epi32(v8_factor_bits(even.lo), 16),
                                            v8_factor_bits(odd.lo)));
    _mm256_storeu_si256(at + 1, _mm256_or_si256(_mm256_srli_epi32(v8_factor_bits(even.hi), 16),
                                                v8_factor_bits(odd.hi)));
}

#else

VEC_FN void v16_put_factors(uint16_t *to, v16 x) {
    for (int i = 0; i < 16; i++)
        to[i] = gqn_bf16_factor(x.l[i]);
}
VEC_FN void v16p_put(void *to, v16 even, v16 odd) {
    uint32_t word[16];
    for (int i = 0; i < 16; i++)
        word[i] = gqn_bf16_factor(even.l[i]) | (uint32_t)gqn_bf16_factor(odd.l[i]) << 16;
    memcpy(to, word, sizeof word);
}

#endif

/* Pairs in registers: in their stored form if the machine can multiply it, otherwise each half as
 * fp32. */
#if defined(__AVX512BF16__)
#define V16P_NATIVE 1

typedef __m512bh v16p;

VEC_FN v16p v16p_load(const void *p) {
    return (v16p)_mm512_loadu_si512(p);
}
/* Sets every lane to one word. */
VEC_FN v16p v16p_spread(const void *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return (v16p)_mm512_set1_epi32(word);
}
VEC_FN v16 v16p_dot(v16 sum, v16p a, v16p b) {
    return _mm512_dpbf16_ps(sum, a, b);
}

#else
#define V16P_NATIVE 0

typedef struct v16p {
    v16 odd, even;
} v16p;

#if defined(__AVX512F__)
VEC_FN v16p v16p_of(v16i w) {
    return (v16p){_mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000u))),
                  _mm512_castsi512_ps(_mm512_slli_epi32(w, 16))};
}
#elif defined(__AVX2__)
VEC_FN v16p v16p_of(v16i w) {
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    return (v16p){{_mm256_castsi256_ps(_mm256_and_si256(w.lo, high)),
                   _mm256_castsi256_ps(_mm256_and_si256(w.hi, high))},
                  {_mm256_castsi256_ps(_mm256_slli_epi32(w.lo, 16)),
                   _mm256_castsi256_ps(_mm256_slli_epi32(w.hi, 16))}};
}
#else
VEC_FN v16p v16p_of(v16i w) {
    v16p p;
    for (int i = 0; i < 16; i++) {
        p.odd.l[i] = gqn_as_f32((uint32_t)w.l[i] & 0xffff0000u);
        p.even.l[i] = gqn_as_f32((uint32_t)w.l[i] << 16);
    }
    return p;
}
#endif

VEC_FN v16p v16p_load(const void *p) {
    return v16p_of(v16i_load(p));
}
VEC_FN v16p v16p_spread(const void *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return v16p_of(v16i_set1(word));
}
VEC_FN v16 v16p_dot(v16 sum, v16p a, v16p b) {
    return v16_fma(a.even, b.even, v16_fma(a.odd, b.odd, sum));
}

#endif

#endif
