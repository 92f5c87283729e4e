/* Additions to vec.h for row kernels: the functions of numerics/math.h, with the same operations in
 * the same order in each lane; and rows of f32, f16 and bf16, sixteen elements at a time. */
#ifndef GQAC_TARGETS_CPU_LEVEL_ROW_MATH_H
#define GQAC_TARGETS_CPU_LEVEL_ROW_MATH_H

#include <gqac/tensor.h>

#include "targets/cpu/level/level.h"

#if defined(__AVX512F__)
VEC_FN v16i row_bits(v16 x) {
    return _mm512_castps_si512(x);
}
VEC_FN v16 row_of_bits(v16i x) {
    return _mm512_castsi512_ps(x);
}
VEC_FN v16 row_sqrt(v16 x) {
    return _mm512_sqrt_ps(x);
}
VEC_FN void row_put_f16(uint16_t *p, v16 x) {
    _mm256_storeu_si256(
        (__m256i *)(void *)p,
        _mm512_maskz_cvtps_ph((__mmask16)0xffff, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__AVX2__)
VEC_FN v16i row_bits(v16 x) {
    return (v16i){_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)};
}
VEC_FN v16 row_of_bits(v16i x) {
    return (v16){_mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi)};
}
VEC_FN v16 row_sqrt(v16 x) {
    return (v16){_mm256_sqrt_ps(x.lo), _mm256_sqrt_ps(x.hi)};
}
VEC_FN void row_put_f16(uint16_t *p, v16 x) {
    const __m128i lo = _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i hi = _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((__m128i *)(void *)p, lo);
    _mm_storeu_si128((__m128i *)(void *)(p + 8), hi);
}
#else
VEC_FN v16i row_bits(v16 x) {
    V16I_EACH((int32_t)gqn_as_u32(x.l[i]));
}
VEC_FN v16 row_of_bits(v16i x) {
    V16_EACH(gqn_as_f32((uint32_t)x.l[i]));
}
VEC_FN v16 row_sqrt(v16 x) {
    V16_EACH(gqn_sqrt(x.l[i]));
}
VEC_FN void row_put_f16(uint16_t *p, v16 x) {
    for (int i = 0; i < 16; i++)
        p[i] = gqn_f32_to_f16(x.l[i]);
}
#endif

/* The magnitude of x with the sign of s. */
VEC_FN v16 row_copysign(v16 x, v16 s) {
    const v16i magnitude = v16i_and(row_bits(x), v16i_set1(0x7fffffff));
    return row_of_bits(v16i_add(magnitude, v16i_and(row_bits(s), v16i_set1(INT32_MIN))));
}

/* gqn_canonical. */
VEC_FN v16 row_canonical(v16 x) {
    const m16 tiny = m16_greater(v16_set1(0x1p-126f), v16_abs(x));
    return v16_one_nan(v16_select(tiny, row_copysign(v16_zero(), x), x));
}

/* gqn_sigmoidf. */
VEC_FN v16 row_sigmoid(v16 x) {
    const v16 one = v16_set1(1.0f);
    const v16 e = v16_exp(row_copysign(x, v16_set1(-1.0f)));
    const v16 y = v16_div(v16_select(m16_greater(v16_zero(), x), e, one), v16_add(one, e));
    return v16_select(m16_unordered(x), v16_set1(gqn_as_f32(GQN_NAN_BITS)), y);
}

/* gqn_tanhf. Most vectors have only small elements. */
VEC_FN v16 row_tanh(v16 x) {
    const v16 a = v16_abs(x), z = v16_mul(a, a), ten = v16_set1(10.0f), one = v16_set1(1.0f);
    const m16 small = m16_greater(v16_set1(0.625f), a);
    v16 q = v16_set1(0x1.3cd562p-9f);
    q = v16_fma(q, z, v16_set1(-0x1.15c668p-7f));
    q = v16_fma(q, z, v16_set1(0x1.658214p-6f));
    q = v16_fma(q, z, v16_set1(-0x1.ba1b1ep-5f));
    q = v16_fma(q, z, v16_set1(0x1.11113ap-3f));
    q = v16_fma(q, z, v16_set1(-0x1.555556p-2f));
    v16 y = v16_fma(v16_mul(a, z), q, a);
    if (m16_bits(small) != 0xffffu) {
        const v16 c = v16_select(m16_greater(ten, a), a, ten);
        const v16 large =
            v16_sub(one, v16_div(v16_set1(2.0f), v16_add(v16_exp_core(v16_add(c, c)), one)));
        y = v16_select(m16_unordered(x), x, v16_select(small, y, large));
    }
    return row_canonical(row_copysign(y, x));
}

/* gqn_erff. */
VEC_FN v16 row_erf(v16 x) {
    const v16 a = v16_abs(x), z = v16_mul(a, a), four = v16_set1(4.0f);
    v16 q = v16_set1(0x1.5d5c98p-14f);
    q = v16_fma(q, z, v16_set1(-0x1.aa4e96p-11f));
    q = v16_fma(q, z, v16_set1(0x1.54c5a6p-8f));
    q = v16_fma(q, z, v16_set1(-0x1.b80db2p-6f));
    q = v16_fma(q, z, v16_set1(0x1.ce2df2p-4f));
    q = v16_fma(q, z, v16_set1(-0x1.812742p-2f));
    q = v16_fma(q, z, v16_set1(0x1.06eba8p-3f));
    const v16 small = v16_fma(a, q, a);
    const v16 c = v16_select(m16_greater(four, a), a, four);
    v16 p = v16_set1(-0x1.cbd0d6p-26f);
    p = v16_fma(p, c, v16_set1(0x1.2824bp-19f));
    p = v16_fma(p, c, v16_set1(-0x1.ae1e5ep-15f));
    p = v16_fma(p, c, v16_set1(0x1.47043p-11f));
    p = v16_fma(p, c, v16_set1(-0x1.3d8f5cp-8f));
    p = v16_fma(p, c, v16_set1(0x1.b3c186p-6f));
    p = v16_fma(p, c, v16_set1(-0x1.c3d14cp-4f));
    p = v16_fma(p, c, v16_set1(-0x1.436748p-1f));
    p = v16_fma(p, c, v16_set1(-0x1.215c06p0f));
    p = v16_fma(p, c, v16_set1(0x1.5dfdf6p-12f));
    const v16 large = v16_sub(v16_set1(1.0f), v16_exp_core(p));
    v16 y = v16_select(m16_greater(v16_set1(0.921875f), a), small, large);
    y = v16_select(m16_unordered(x), x, y);
    return row_canonical(row_copysign(y, x));
}

/* ---- rows of any float type ---------------------------------------------- */

VEC_FN size_t row_width(gqac_dtype type) {
    return type == GQAC_F32 ? 4 : 2;
}

VEC_FN const void *row_at(const void *p, gqac_dtype type, int64_t i) {
    return (const unsigned char *)p + (size_t)i * row_width(type);
}

/* Elements [i, i + n) in the first n lanes, n <= 16; the others are +0. */
VEC_FN v16 row_load(const void *p, gqac_dtype type, int64_t i, int n) {
    if (type == GQAC_F32)
        return n == 16 ? v16_load((const float *)p + i) : v16_load_n((const float *)p + i, n);
    const uint16_t *half = (const uint16_t *)p + i;
    uint16_t tail[16] = {0};
    if (n < 16) {
        for (int k = 0; k < n; k++)
            tail[k] = half[k];
        half = tail;
    }
    return type == GQAC_F16 ? v16_load_f16(half) : v16_load_bf16(half);
}

VEC_FN void row_put_bf16(uint16_t *p, v16 x) {
    const v16i u = row_bits(x), odd = v16i_and(v16i_shr(u, 16), v16i_set1(1));
    const v16i h = v16i_shr(v16i_add(v16i_add(u, v16i_set1(0x7fff)), odd), 16);
    uint32_t wide[16];
    memcpy(wide, &h, sizeof wide);
    for (int i = 0; i < 16; i++)
        p[i] = (uint16_t)wide[i];
}

/* Stores the first n lanes to elements [i, i + n), rounded once, with every NaN replaced by the
 * canonical NaN of the type. */
VEC_FN void row_store(void *p, gqac_dtype type, int64_t i, v16 value, int n) {
    const v16 x = v16_one_nan(value);
    if (type == GQAC_F32) {
        if (n == 16)
            v16_store((float *)p + i, x);
        else
            v16_store_n((float *)p + i, x, n);
        return;
    }
    uint16_t *half = (uint16_t *)p + i, tail[16];
    uint16_t *to = n == 16 ? half : tail;
    if (type == GQAC_F16)
        row_put_f16(to, x);
    else
        row_put_bf16(to, x);
    for (int k = 0; n < 16 && k < n; k++)
        half[k] = tail[k];
}

/* x rounded to that type and widened again. */
VEC_FN v16 row_round(v16 x, gqac_dtype type) {
    uint16_t half[16];
    if (type == GQAC_F32)
        return x;
    row_store(half, type, 0, x, 16);
    return row_load(half, type, 0, 16);
}

#endif
