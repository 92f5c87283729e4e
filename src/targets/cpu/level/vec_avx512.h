/* vec.h on AVX-512 (F, BW, DQ, VL) and, if the build enables it, VNNI: one zmm. */
#ifndef GQAC_TARGETS_CPU_LEVEL_VEC_AVX512_H
#define GQAC_TARGETS_CPU_LEVEL_VEC_AVX512_H

#include <immintrin.h>

enum { V16_REGISTERS = 32 };

typedef __m512 v16;
typedef __m512i v16i;
typedef __mmask16 m16;

VEC_FN v16 v16_zero(void) {
    return _mm512_setzero_ps();
}
VEC_FN v16 v16_set1(float x) {
    return _mm512_set1_ps(x);
}
VEC_FN v16 v16_load(const float *p) {
    return _mm512_loadu_ps(p);
}
#ifndef V16_IN_REGISTER /* tests may emulate the type */
#define V16_IN_REGISTER(x) __asm__("" : "+v"(x))
#endif
VEC_FN v16 v16_keep(v16 x) {
    V16_IN_REGISTER(x);
    return x;
}
VEC_FN void v16_store(float *p, v16 x) {
    _mm512_storeu_ps(p, x);
}
VEC_FN m16 m16_of_bits(uint32_t bits) {
    return (m16)bits;
}
VEC_FN uint32_t m16_bits(m16 m) {
    return m;
}
VEC_FN v16 v16_load_n(const float *p, int n) {
    return _mm512_maskz_loadu_ps((m16)(n >= 16 ? 0xffffu : (1u << n) - 1u), p);
}
VEC_FN void v16_store_n(float *p, v16 x, int n) {
    _mm512_mask_storeu_ps(p, (m16)(n >= 16 ? 0xffffu : (1u << n) - 1u), x);
}
VEC_FN v16 v16_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
VEC_FN v16 v16_load_bf16(const uint16_t *p) {
    const __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
VEC_FN v16 v16_of_i8(__m128i b) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
}
VEC_FN void v16_store_i8(int8_t *p, v16 x) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
}
VEC_FN void v16_transpose(const float *from, int64_t step, float *to, int64_t ld) {
    __m512 x[16], y[16];
    for (int j = 0; j < 16; j++)
        x[j] = _mm512_loadu_ps(from + j * step);
    for (int j = 0; j < 16; j += 4) { /* in each quarter: columns 0..3 of four rows */
        const __m512 a = _mm512_unpacklo_ps(x[j], x[j + 1]);
        const __m512 b = _mm512_unpackhi_ps(x[j], x[j + 1]);
        const __m512 c = _mm512_unpacklo_ps(x[j + 2], x[j + 3]);
        const __m512 d = _mm512_unpackhi_ps(x[j + 2], x[j + 3]);
        y[j] = _mm512_shuffle_ps(a, c, 0x44);
        y[j + 1] = _mm512_shuffle_ps(a, c, 0xee);
        y[j + 2] = _mm512_shuffle_ps(b, d, 0x44);
        y[j + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) { /* quarter q of these is column 4 q + i */
        const __m512 a = _mm512_shuffle_f32x4(y[i], y[4 + i], 0x44);
        const __m512 b = _mm512_shuffle_f32x4(y[i], y[4 + i], 0xee);
        const __m512 c = _mm512_shuffle_f32x4(y[8 + i], y[12 + i], 0x44);
        const __m512 d = _mm512_shuffle_f32x4(y[8 + i], y[12 + i], 0xee);
        _mm512_storeu_ps(to + i * ld, _mm512_shuffle_f32x4(a, c, 0x88));
        _mm512_storeu_ps(to + (4 + i) * ld, _mm512_shuffle_f32x4(a, c, 0xdd));
        _mm512_storeu_ps(to + (8 + i) * ld, _mm512_shuffle_f32x4(b, d, 0x88));
        _mm512_storeu_ps(to + (12 + i) * ld, _mm512_shuffle_f32x4(b, d, 0xdd));
    }
}
VEC_FN v16 v16_fma(v16 a, v16 b, v16 c) {
    return _mm512_fmadd_ps(a, b, c);
}
VEC_FN v16 v16_add(v16 a, v16 b) {
    return _mm512_add_ps(a, b);
}
VEC_FN v16 v16_sub(v16 a, v16 b) {
    return _mm512_sub_ps(a, b);
}
VEC_FN v16 v16_mul(v16 a, v16 b) {
    return _mm512_mul_ps(a, b);
}
VEC_FN v16 v16_div(v16 a, v16 b) {
    return _mm512_div_ps(a, b);
}
/* vmaxps returns its second operand if either is NaN or both are zeros. */
VEC_FN v16 v16_max_step(v16 m, v16 x) {
    return _mm512_max_ps(x, m);
}
VEC_FN v16 v16_abs(v16 x) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}
VEC_FN v16 v16_select(m16 m, v16 yes, v16 no) {
    return _mm512_mask_blend_ps(m, no, yes);
}
VEC_FN m16 m16_greater(v16 a, v16 b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
VEC_FN m16 m16_unordered(v16 x) {
    return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
}
VEC_FN v16 v16_scale_bits(v16 p, v16 t, v16 magic) {
    const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_castps_si512(magic));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(n, 23)));
}

VEC_FN v16i v16i_zero(void) {
    return _mm512_setzero_si512();
}
VEC_FN v16i v16i_set1(int32_t x) {
    return _mm512_set1_epi32(x);
}
VEC_FN v16i v16i_load(const void *p) {
    return _mm512_loadu_si512(p);
}
VEC_FN void v16i_store(void *p, v16i x) {
    _mm512_storeu_si512(p, x);
}
VEC_FN v16i v16i_and(v16i a, v16i b) {
    return _mm512_and_si512(a, b);
}
VEC_FN v16i v16i_shr(v16i x, int n) {
    return _mm512_srli_epi32(x, (unsigned)n);
}
VEC_FN v16i v16i_add(v16i a, v16i b) {
    return _mm512_add_epi32(a, b);
}
VEC_FN v16i v16i_sub(v16i a, v16i b) {
    return _mm512_sub_epi32(a, b);
}
VEC_FN v16i v16i_mul_pairs(v16i a, v16i b) {
    return _mm512_mullo_epi16(a, b);
}
VEC_FN v16i v16i_dot_pairs(v16i a, v16i b) {
    return _mm512_madd_epi16(a, b);
}
VEC_FN v16i v16i_dot_pairs_add(v16i sum, v16i a, v16i b) {
    return v16i_add(sum, v16i_dot_pairs(a, b));
}
VEC_FN v16i v16i_even_bytes(v16i x) {
    return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8);
}
VEC_FN v16i v16i_odd_bytes(v16i x) {
    return _mm512_srai_epi16(x, 8);
}
VEC_FN v16 v16_of_v16i(v16i x) {
    return _mm512_cvtepi32_ps(x);
}
#if defined(__AVX512VNNI__)
/* In place: without asm the compiler copies sums between registers. */
#ifndef VPDPBUSD
#define VPDPBUSD(sum, u, s) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s))
#endif
VEC_FN v16i v16i_dot_bytes(v16i sum, v16i u, v16i s) {
    VPDPBUSD(sum, u, s);
    return sum;
}
enum { V16I_NIBBLES = 1 << 30 };
VEC_FN v16i v16i_nibbles_add(v16i sum, v16i u, v16i s) {
    return v16i_dot_bytes(sum, u, s);
}
VEC_FN v16i v16i_nibbles_end(v16i sum, int16_t times) {
    return _mm512_mullo_epi32(sum, _mm512_set1_epi32(times));
}
#else
/* Even and odd bytes are multiplied separately, as 16-bit numbers: vpmaddubsw would saturate. */
VEC_FN v16i v16i_dot_bytes(v16i sum, v16i u, v16i s) {
    const __m512i low = _mm512_set1_epi16(0xff);
    const __m512i even =
        _mm512_madd_epi16(_mm512_and_si512(u, low), _mm512_srai_epi16(_mm512_slli_epi16(s, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(u, 8), _mm512_srai_epi16(s, 8));
    return _mm512_add_epi32(sum, _mm512_add_epi32(even, odd));
}
enum { V16I_NIBBLES = 8 };
/* vpmaddubsw cannot saturate: 2 * 15 * 128 < 2^15. */
VEC_FN v16i v16i_nibbles_add(v16i sum, v16i u, v16i s) {
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(u, s));
}
VEC_FN v16i v16i_nibbles_end(v16i sum, int16_t times) {
    return _mm512_madd_epi16(sum, _mm512_set1_epi16(times));
}
#endif

#endif
