/* vec.h on AVX2, FMA and F16C: two ymm. The build sets -mavx2 -mfma -mf16c. */
#ifndef GQAC_TARGETS_CPU_LEVEL_VEC_AVX2_H
#define GQAC_TARGETS_CPU_LEVEL_VEC_AVX2_H

#include <immintrin.h>

enum { V16_REGISTERS = 8 };

typedef struct v16 {
    __m256 lo, hi;
} v16;
typedef struct v16i {
    __m256i lo, hi;
} v16i;
typedef struct m16 {
    __m256 lo, hi; /* all ones or zeros in a lane */
} m16;

VEC_FN v16 v16_zero(void) {
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
VEC_FN v16 v16_set1(float x) {
    const __m256 v = _mm256_set1_ps(x);
    return (v16){v, v};
}
VEC_FN v16 v16_load(const float *p) {
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
VEC_FN v16 v16_keep(v16 x) {
    __asm__("" : "+x"(x.lo), "+x"(x.hi));
    return x;
}
VEC_FN void v16_store(float *p, v16 x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
}
VEC_FN m16 m16_of_bits(uint32_t bits) {
    const __m256i at = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i lo = _mm256_set1_epi32((int)(bits & 0xffu));
    const __m256i hi = _mm256_set1_epi32((int)(bits >> 8 & 0xffu));
    return (m16){_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(lo, at), at)),
                 _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(hi, at), at))};
}
VEC_FN uint32_t m16_bits(m16 m) {
    return (uint32_t)_mm256_movemask_ps(m.lo) | (uint32_t)_mm256_movemask_ps(m.hi) << 8;
}
VEC_FN v16 v16_load_n(const float *p, int n) {
    const m16 m = m16_of_bits(n >= 16 ? 0xffffu : (1u << n) - 1u);
    return (v16){_mm256_maskload_ps(p, _mm256_castps_si256(m.lo)),
                 _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.hi))};
}
VEC_FN void v16_store_n(float *p, v16 x, int n) {
    const m16 m = m16_of_bits(n >= 16 ? 0xffffu : (1u << n) - 1u);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.lo), x.lo);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.hi), x.hi);
}
VEC_FN v16 v16_load_f16(const uint16_t *p) {
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))};
}
VEC_FN __m256 v8_load_bf16(const uint16_t *p) {
    const __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
VEC_FN v16 v16_load_bf16(const uint16_t *p) {
    return (v16){v8_load_bf16(p), v8_load_bf16(p + 8)};
}
VEC_FN v16 v16_of_i8(__m128i b) {
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8)))};
}
VEC_FN void v16_store_i8(int8_t *p, v16 x) {
    const __m256i w = _mm256_packs_epi32(_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi));
    const __m256i b = _mm256_packs_epi16(w, w); /* quarters 0, 2, 1, 3 in words 0, 4, 1, 5 */
    const __m256i at = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(b, at)));
}
VEC_FN void v8_transpose(const float *from, int64_t step, float *to, int64_t ld) {
    __m256 x[8], y[8];
    for (int i = 0; i < 4; i++) { /* halves of rows i and i + 4 side by side */
        const float *low = from + i * step, *high = from + (i + 4) * step;
        x[i] =
            _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
        x[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low + 4)),
                                        _mm_loadu_ps(high + 4), 1);
    }
    for (int i = 0; i < 8; i += 4) { /* a transpose of 4 by 4 in each half */
        y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
        y[i + 2] = _mm256_unpacklo_ps(x[i + 2], x[i + 3]);
        y[i + 3] = _mm256_unpackhi_ps(x[i + 2], x[i + 3]);
    }
    for (int i = 0; i < 8; i += 4) {
        _mm256_storeu_ps(to + i * ld, _mm256_shuffle_ps(y[i], y[i + 2], 0x44));
        _mm256_storeu_ps(to + (i + 1) * ld, _mm256_shuffle_ps(y[i], y[i + 2], 0xee));
        _mm256_storeu_ps(to + (i + 2) * ld, _mm256_shuffle_ps(y[i + 1], y[i + 3], 0x44));
        _mm256_storeu_ps(to + (i + 3) * ld, _mm256_shuffle_ps(y[i + 1], y[i + 3], 0xee));
    }
}
VEC_FN void v16_transpose(const float *from, int64_t step, float *to, int64_t ld) {
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 16; j += 8)
            v8_transpose(from + j * step + i, step, to + i * ld + j, ld);
}
VEC_FN v16 v16_fma(v16 a, v16 b, v16 c) {
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
VEC_FN v16 v16_add(v16 a, v16 b) {
    return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
VEC_FN v16 v16_sub(v16 a, v16 b) {
    return (v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
VEC_FN v16 v16_mul(v16 a, v16 b) {
    return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
VEC_FN v16 v16_div(v16 a, v16 b) {
    return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
/* vmaxps returns its second operand if either is NaN or both are zeros. */
VEC_FN v16 v16_max_step(v16 m, v16 x) {
    return (v16){_mm256_max_ps(x.lo, m.lo), _mm256_max_ps(x.hi, m.hi)};
}
VEC_FN v16 v16_abs(v16 x) {
    const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return (v16){_mm256_and_ps(x.lo, m), _mm256_and_ps(x.hi, m)};
}
VEC_FN v16 v16_select(m16 m, v16 yes, v16 no) {
    return (v16){_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}
VEC_FN m16 m16_greater(v16 a, v16 b) {
    return (m16){_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)};
}
VEC_FN m16 m16_unordered(v16 x) {
    return (m16){_mm256_cmp_ps(x.lo, x.lo, _CMP_UNORD_Q), _mm256_cmp_ps(x.hi, x.hi, _CMP_UNORD_Q)};
}
VEC_FN __m256 v8_scale_bits(__m256 p, __m256 t, __m256 magic) {
    const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(magic));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(n, 23)));
}
VEC_FN v16 v16_scale_bits(v16 p, v16 t, v16 magic) {
    return (v16){v8_scale_bits(p.lo, t.lo, magic.lo), v8_scale_bits(p.hi, t.hi, magic.hi)};
}

VEC_FN v16i v16i_zero(void) {
    return (v16i){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
VEC_FN v16i v16i_set1(int32_t x) {
    const __m256i v = _mm256_set1_epi32(x);
    return (v16i){v, v};
}
VEC_FN v16i v16i_load(const void *p) {
    const __m256i *at = p;
    return (v16i){_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
VEC_FN void v16i_store(void *p, v16i x) {
    __m256i *at = p;
    _mm256_storeu_si256(at, x.lo);
    _mm256_storeu_si256(at + 1, x.hi);
}
VEC_FN v16i v16i_and(v16i a, v16i b) {
    return (v16i){_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
VEC_FN v16i v16i_shr(v16i x, int n) {
    return (v16i){_mm256_srli_epi32(x.lo, n), _mm256_srli_epi32(x.hi, n)};
}
VEC_FN v16i v16i_add(v16i a, v16i b) {
    return (v16i){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
VEC_FN v16i v16i_sub(v16i a, v16i b) {
    return (v16i){_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
VEC_FN v16i v16i_mul_pairs(v16i a, v16i b) {
    return (v16i){_mm256_mullo_epi16(a.lo, b.lo), _mm256_mullo_epi16(a.hi, b.hi)};
}
VEC_FN v16i v16i_dot_pairs(v16i a, v16i b) {
    return (v16i){_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)};
}
/* In place: without asm the compiler delays the sums and fills the registers with their
 * operands. */
VEC_FN v16i v16i_dot_pairs_add(v16i sum, v16i a, v16i b) {
    __asm__("vpaddd %1, %0, %0" : "+x"(sum.lo) : "x"(_mm256_madd_epi16(a.lo, b.lo)));
    __asm__("vpaddd %1, %0, %0" : "+x"(sum.hi) : "x"(_mm256_madd_epi16(a.hi, b.hi)));
    return sum;
}
VEC_FN v16i v16i_even_bytes(v16i x) {
    return (v16i){_mm256_srai_epi16(_mm256_slli_epi16(x.lo, 8), 8),
                  _mm256_srai_epi16(_mm256_slli_epi16(x.hi, 8), 8)};
}
VEC_FN v16i v16i_odd_bytes(v16i x) {
    return (v16i){_mm256_srai_epi16(x.lo, 8), _mm256_srai_epi16(x.hi, 8)};
}
VEC_FN v16 v16_of_v16i(v16i x) {
    return (v16){_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)};
}
/* Even and odd bytes are multiplied separately, as 16-bit numbers: vpmaddubsw would saturate. */
VEC_FN __m256i v8_dot_bytes(__m256i sum, __m256i u, __m256i s) {
    const __m256i low = _mm256_set1_epi16(0xff);
    const __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(u, low), _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(s, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
VEC_FN v16i v16i_dot_bytes(v16i sum, v16i u, v16i s) {
    return (v16i){v8_dot_bytes(sum.lo, u.lo, s.lo), v8_dot_bytes(sum.hi, u.hi, s.hi)};
}
enum { V16I_NIBBLES = 8 };
/* vpmaddubsw cannot saturate: 2 * 15 * 128 < 2^15. The sum is added in place, as above. */
VEC_FN v16i v16i_nibbles_add(v16i sum, v16i u, v16i s) {
    __asm__("vpaddw %1, %0, %0" : "+x"(sum.lo) : "x"(_mm256_maddubs_epi16(u.lo, s.lo)));
    __asm__("vpaddw %1, %0, %0" : "+x"(sum.hi) : "x"(_mm256_maddubs_epi16(u.hi, s.hi)));
    return sum;
}
VEC_FN v16i v16i_nibbles_end(v16i sum, int16_t times) {
    const __m256i t = _mm256_set1_epi16(times);
    return (v16i){_mm256_madd_epi16(sum.lo, t), _mm256_madd_epi16(sum.hi, t)};
}

#endif
