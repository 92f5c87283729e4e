/* AVX-512 for machines that lack it: SIMDe's portable form of the intrinsics that vec_avx512.h
 * uses, on AVX2. Where SIMDe may round a fused multiply-add twice, or lacks an intrinsic, the
 * halves of a vector use AVX2 intrinsics. If it is included before vec.h, vec.h uses its AVX-512
 * form. */
#ifndef GQAC_TEST_TARGETS_SIMDE_H
#define GQAC_TEST_TARGETS_SIMDE_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#define __AVX512F__ 1
#ifdef PROBE_SIMDE_VNNI
#define __AVX512VNNI__ 1
#endif

static inline simde__m512 halves_fmadd(simde__m512 a, simde__m512 b, simde__m512 c) {
    const simde__m512_private x = simde__m512_to_private(a), y = simde__m512_to_private(b);
    simde__m512_private z = simde__m512_to_private(c);
    for (int i = 0; i < 2; i++)
        z.m256[i] = _mm256_fmadd_ps(x.m256[i], y.m256[i], z.m256[i]);
    return simde__m512_from_private(z);
}

static inline simde__m512 halves_cvtph(__m256i h) {
    simde__m512_private z;
    z.m256[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    z.m256[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
    return simde__m512_from_private(z);
}

static inline simde__m512i halves_cvtepu16(__m256i h) {
    simde__m512i_private z;
    z.m256i[0] = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(h));
    z.m256i[1] = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(h, 1));
    return simde__m512i_from_private(z);
}

static inline simde__m512i halves_cvtepi8(__m128i b) {
    simde__m512i_private z;
    z.m256i[0] = _mm256_cvtepi8_epi32(b);
    z.m256i[1] = _mm256_cvtepi8_epi32(_mm_srli_si128(b, 8));
    return simde__m512i_from_private(z);
}

static inline simde__m512 halves_cvtepi32(simde__m512i x) {
    const simde__m512i_private y = simde__m512i_to_private(x);
    simde__m512_private z;
    for (int i = 0; i < 2; i++)
        z.m256[i] = _mm256_cvtepi32_ps(y.m256i[i]);
    return simde__m512_from_private(z);
}

static inline __m128i halves_to_i8(simde__m512 x) {
    const simde__m512_private y = simde__m512_to_private(x);
    __m256i w = _mm256_packs_epi32(_mm256_cvtps_epi32(y.m256[0]), _mm256_cvtps_epi32(y.m256[1]));
    w = _mm256_permute4x64_epi64(w, 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
}

static inline __m256i lanes_cvtepi32_epi16(simde__m512i x) {
    const simde__m512i_private y = simde__m512i_to_private(x);
    uint16_t z[16];
    for (int i = 0; i < 16; i++)
        z[i] = (uint16_t)y.i32[i];
    return _mm256_loadu_si256((const __m256i *)(const void *)z);
}

static inline simde__m512 lanes_loadu(uint16_t mask, const float *p) {
    simde__m512_private z;
    for (int i = 0; i < 16; i++)
        z.f32[i] = mask >> i & 1 ? p[i] : 0.0f;
    return simde__m512_from_private(z);
}

static inline void lanes_storeu(float *p, uint16_t mask, simde__m512 x) {
    const simde__m512_private y = simde__m512_to_private(x);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            p[i] = y.f32[i];
}

static inline simde__m512 quarters(simde__m512 a, simde__m512 b, int order) {
    const simde__m512_private x = simde__m512_to_private(a), y = simde__m512_to_private(b);
    simde__m512_private z;
    for (int i = 0; i < 4; i++)
        z.m128[i] = (i < 2 ? x : y).m128[order >> 2 * i & 3];
    return simde__m512_from_private(z);
}

#undef _mm512_madd_epi16 /* its alias takes the arguments of the masked form */
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps(a, b, c) halves_fmadd(a, b, c)
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4(a, b, n) quarters(a, b, n)
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32(x) (x)
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8(x)        halves_to_i8(x)
#define V16_IN_REGISTER(x)             (void)(x)
#define VPDPBUSD(sum, u, s)            ((sum) = _mm512_dpbusd_epi32(sum, u, s))
#define _mm512_cvtph_ps(h)             halves_cvtph(h)
#define _mm512_cvtepu16_epi32(h)       halves_cvtepu16(h)
#define _mm512_cvtepi32_ps(x)          halves_cvtepi32(x)
#define _mm512_cvtepi8_epi32(b)        halves_cvtepi8(b)
#define _mm512_cvtepi32_epi16(x)       lanes_cvtepi32_epi16(x)
#define _mm512_maskz_loadu_ps(m, p)    lanes_loadu(m, p)
#define _mm512_mask_storeu_ps(p, m, x) lanes_storeu(p, m, x)

#endif
