/* Elementary functions that return the same bits on every path: built from correctly rounded +, -,
 * *, /, fma, sqrt and bit operations only, in the dialect of dialect.h. Coefficients come from
 * coefficients.sollya; the bounds, over all floats, are asserted by test/numerics. Invariants of
 * every function here: a NaN result is 0x7fc00000; a result below 2^-126 in magnitude is replaced
 * by a zero of the same sign; no table of the C library, no excess precision, no state. All but
 * sin, cos and pow are straight-line code with selects, so that a loop over lanes vectorises. Link
 * with libm: without a hardware fma the compiler calls its (exact) fmaf. Largest errors in ulp,
 * measured over every float, with the asserted bounds in brackets: exp 0.982, log 0.954, sin 0.786,
 * cos 0.790 [1]; rsqrt 1.491, pow 1.22 sampled [1.5]; tanh 1.331, erf 1.117 [2]; sigmoid 2.402,
 * softplus 2.024 [2.5]. */
#ifndef GQAC_NUMERICS_MATH_H
#define GQAC_NUMERICS_MATH_H

#ifndef GQAC_NUMERICS_DIALECT_H
#include "dialect.h"
#endif

#define GQN_LN2_HI  0x1.62e4p-1f /* 14 bits: its product with an exponent is exact */
#define GQN_LN2_LO  0x1.7f7d1cp-20f
#define GQN_INV_LN2 0x1.715476p0f
#define GQN_MAGIC   0x1.8p23f /* adding it rounds to an integer in the low bits */

/* The smallest x with exp(x) >= 2^-126, and the largest with a finite exp. */
#define GQN_EXP_MIN (-0x1.5d589ep6f)
#define GQN_EXP_MAX 0x1.62e42ep6f

GQN_FN float gqn_abs(float x) {
    return gqn_as_f32(gqn_as_u32(x) & 0x7fffffffu);
}

/* The magnitude of x with the sign of s. */
GQN_FN float gqn_copysign(float x, float s) {
    return gqn_as_f32((gqn_as_u32(x) & 0x7fffffffu) | (gqn_as_u32(s) & 0x80000000u));
}

/* Canonical NaN for any NaN, signed zero for subnormals, anything else unchanged. */
GQN_FN float gqn_canonical(float x) {
    gqn_u32 u = gqn_as_u32(x);
    gqn_u32 a = u & 0x7fffffffu;
    u = a < 0x00800000u ? u & 0x80000000u : u;
    return gqn_as_f32(a > GQN_INF_BITS ? GQN_NAN_BITS : u);
}

/* (exp(r) - 1 - r) / r^2 for |r| <= 0.3475. */
GQN_FN float gqn_exp_poly(float r) {
    float q = 0x1.a2d442p-13f;
    q = gqn_fma(q, r, 0x1.6d30d2p-10f);
    q = gqn_fma(q, r, 0x1.110fc4p-7f);
    q = gqn_fma(q, r, 0x1.5555p-5f);
    q = gqn_fma(q, r, 0x1.555556p-3f);
    return gqn_fma(q, r, 0.5f);
}

/* exp(x) for x in [GQN_EXP_MIN, GQN_EXP_MAX]. In that range the exponent can be added to the bits,
 * because the mantissa part is below 1 where n is 128 and at least 1 where n is -126. */
GQN_FN float gqn_exp_core(float x) {
    float t = gqn_fma(x, GQN_INV_LN2, GQN_MAGIC);
    float n = t - GQN_MAGIC;
    float r = gqn_fma(n, -GQN_LN2_HI, x);
    r = gqn_fma(n, -GQN_LN2_LO, r);
    float p = gqn_fma(r * r, gqn_exp_poly(r), r) + 1.0f;
    return gqn_as_f32(gqn_as_u32(p) + ((gqn_as_u32(t) - gqn_as_u32(GQN_MAGIC)) << 23));
}

GQN_FN float gqn_expf(float x) {
    float c = x < GQN_EXP_MIN ? GQN_EXP_MIN : x;
    c = c > GQN_EXP_MAX ? GQN_EXP_MAX : c;
    float y = gqn_exp_core(c);
    y = x < GQN_EXP_MIN ? 0.0f : y;
    y = x > GQN_EXP_MAX ? gqn_as_f32(GQN_INF_BITS) : y;
    return x != x ? gqn_as_f32(GQN_NAN_BITS) : y;
}

/* (log(1 + f) - f) / f^2 for 1 + f in [sqrt(1/2), sqrt(2)]. */
GQN_FN float gqn_log_poly(float f) {
    float q = -0x1.495bcep-4f;
    q = gqn_fma(q, f, 0x1.08a48cp-3f);
    q = gqn_fma(q, f, -0x1.0bf66ep-3f);
    q = gqn_fma(q, f, 0x1.2244bp-3f);
    q = gqn_fma(q, f, -0x1.5487d6p-3f);
    q = gqn_fma(q, f, 0x1.99a7a6p-3f);
    q = gqn_fma(q, f, -0x1.000222p-2f);
    q = gqn_fma(q, f, 0x1.555548p-2f);
    return gqn_fma(q, f, -0x1.fffffep-2f);
}

/* Exponent e and mantissa m in [sqrt(1/2), sqrt(2)) of a positive finite x, also of a subnormal
 * one. */
typedef struct gqn_parts {
    float m, e;
} gqn_parts;

GQN_FN gqn_parts gqn_split(float x) {
    gqn_u32 tiny = gqn_as_u32(x) < 0x00800000u;
    gqn_u32 u = gqn_as_u32(tiny ? x * 0x1p23f : x);
    gqn_i32 e = (gqn_i32)(u - 0x3f3504f3u) >> 23;
    gqn_parts p;
    p.m = gqn_as_f32(u - ((gqn_u32)e << 23));
    p.e = (float)(tiny ? e - 23 : e);
    return p;
}

GQN_FN float gqn_logf(float x) {
    gqn_parts p = gqn_split(x);
    float f = p.m - 1.0f;
    float big = p.e * GQN_LN2_HI;
    float hi = big + f;
    float lo = f - (hi - big);
    float s = gqn_fma(p.e, GQN_LN2_LO, f * f * gqn_log_poly(f));
    float y = hi + (lo + s);
    y = x == 0.0f ? -gqn_as_f32(GQN_INF_BITS) : y;
    y = gqn_as_u32(x) == GQN_INF_BITS ? x : y;
    return x >= 0.0f ? y : gqn_as_f32(GQN_NAN_BITS);
}

/* Below 0.625 the odd polynomial, above it 1 - 2 / (exp(2|x|) + 1). */
GQN_FN float gqn_tanhf(float x) {
    float a = gqn_abs(x);
    float z = a * a;
    float q = 0x1.3cd562p-9f;
    q = gqn_fma(q, z, -0x1.15c668p-7f);
    q = gqn_fma(q, z, 0x1.658214p-6f);
    q = gqn_fma(q, z, -0x1.ba1b1ep-5f);
    q = gqn_fma(q, z, 0x1.11113ap-3f);
    q = gqn_fma(q, z, -0x1.555556p-2f);
    float small = gqn_fma(a * z, q, a);
    float c = a < 10.0f ? a : 10.0f;
    float large = 1.0f - gqn_div(2.0f, gqn_exp_core(c + c) + 1.0f);
    float y = a < 0.625f ? small : large;
    y = gqn_copysign(x != x ? x : y, x);
    return gqn_canonical(y);
}

/* x + x q(x^2) below 0.921875; above it 1 - exp(p(|x|)), p approximating log(erfc). */
GQN_FN float gqn_erff(float x) {
    float a = gqn_abs(x);
    float z = a * a;
    float q = 0x1.5d5c98p-14f;
    q = gqn_fma(q, z, -0x1.aa4e96p-11f);
    q = gqn_fma(q, z, 0x1.54c5a6p-8f);
    q = gqn_fma(q, z, -0x1.b80db2p-6f);
    q = gqn_fma(q, z, 0x1.ce2df2p-4f);
    q = gqn_fma(q, z, -0x1.812742p-2f);
    q = gqn_fma(q, z, 0x1.06eba8p-3f);
    float small = gqn_fma(a, q, a);
    float c = a < 4.0f ? a : 4.0f;
    float p = -0x1.cbd0d6p-26f;
    p = gqn_fma(p, c, 0x1.2824bp-19f);
    p = gqn_fma(p, c, -0x1.ae1e5ep-15f);
    p = gqn_fma(p, c, 0x1.47043p-11f);
    p = gqn_fma(p, c, -0x1.3d8f5cp-8f);
    p = gqn_fma(p, c, 0x1.b3c186p-6f);
    p = gqn_fma(p, c, -0x1.c3d14cp-4f);
    p = gqn_fma(p, c, -0x1.436748p-1f);
    p = gqn_fma(p, c, -0x1.215c06p0f);
    p = gqn_fma(p, c, 0x1.5dfdf6p-12f);
    float large = 1.0f - gqn_exp_core(p);
    float y = a < 0.921875f ? small : large;
    y = gqn_copysign(x != x ? x : y, x);
    return gqn_canonical(y);
}

/* |x| = quadrant * pi/2 + hi + lo, |hi| <= pi/4 (a little more near 1). */
typedef struct gqn_angle {
    float hi, lo;
    gqn_u32 quadrant;
} gqn_angle;

/* 96 bits of |x| * 2/pi modulo 4: the integer mantissa of x times a window of the bits of 2/pi (the
 * method of Payne and Hanek). The distance of a float from a multiple of pi/2 is at least about
 * 2^-31 of it, which leaves 30 good bits. Word 0 is the integer part, zero, so that x = 0.5 has a
 * window. */
GQN_FN gqn_u64 gqn_turns(gqn_u32 a) {
    const gqn_u32 two_over_pi[8] = {0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                    0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
    gqn_u32 m = (a & 0x007fffffu) | 0x00800000u;
    gqn_u32 offset = (a >> 23) - 120u; /* 30 + the power of two by which m is scaled */
    gqn_u32 i = offset >> 5;
    gqn_u32 s = offset & 31u;
    gqn_u64 ab = ((gqn_u64)two_over_pi[i] << 32) | two_over_pi[i + 1u];
    gqn_u64 bc = ((gqn_u64)two_over_pi[i + 1u] << 32) | two_over_pi[i + 2u];
    gqn_u64 cd = ((gqn_u64)two_over_pi[i + 2u] << 32) | two_over_pi[i + 3u];
    gqn_u32 w0 = (gqn_u32)((ab << s) >> 32);
    gqn_u32 w1 = (gqn_u32)((bc << s) >> 32);
    gqn_u32 w2 = (gqn_u32)((cd << s) >> 32);
    return ((gqn_u64)(m * w0) << 32) + (gqn_u64)m * w1 + (((gqn_u64)m * w2) >> 32);
}

GQN_FN gqn_angle gqn_reduce_angle(float x) {
    gqn_angle r;
    gqn_u32 a = gqn_as_u32(x) & 0x7fffffffu;
    if (a <= 0x3f490fdau) { /* |x| <= pi/4 */
        r.hi = gqn_as_f32(a);
        r.lo = 0.0f;
        r.quadrant = 0u;
        return r;
    }
    gqn_u64 turns = gqn_turns(a);
    r.quadrant = (gqn_u32)((turns + ((gqn_u64)1 << 61)) >> 62);
    gqn_u64 f = turns - ((gqn_u64)r.quadrant << 62);
    gqn_u32 negative = (gqn_u32)(f >> 63);
    f = negative ? (gqn_u64)0 - f : f;
    /* 62 bits of fraction as three exact floats, then as an unevaluated sum of two */
    float c0 = (float)(gqn_i32)(f >> 41) * 0x1p-21f;
    float c1 = (float)(gqn_i32)((f >> 20) & 0x1fffffu) * 0x1p-42f;
    float c2 = (float)(gqn_i32)(f & 0xfffffu) * 0x1p-62f;
    float t = c1 + c2;
    float tl = c2 - (t - c1);
    float h = c0 + t;
    float l = (t - (h - c0)) + tl;
    h = negative ? -h : h;
    l = negative ? -l : l;
    t = h * 0x1.921fb6p0f;
    l = gqn_fma(h, 0x1.921fb6p0f, -t) + gqn_fma(h, -0x1.777a5cp-25f, l * 0x1.921fb6p0f);
    r.hi = t + l;
    r.lo = l - (r.hi - t);
    r.quadrant &= 3u;
    return r;
}

GQN_FN float gqn_sin_core(gqn_angle r) {
    float z = r.hi * r.hi;
    float q = 0x1.882736p-19f;
    q = gqn_fma(q, z, -0x1.a08584p-13f);
    q = gqn_fma(q, z, 0x1.11119ap-7f);
    q = gqn_fma(q, z, -0x1.555556p-3f);
    float lo = gqn_fma(-0.5f * z, r.lo, r.lo); /* cos(hi) lo */
    return r.hi + gqn_fma(r.hi * z, q, lo);
}

GQN_FN float gqn_cos_core(gqn_angle r) {
    float z = r.hi * r.hi;
    float q = 0x1.9bc774p-16f;
    q = gqn_fma(q, z, -0x1.6c129ep-10f);
    q = gqn_fma(q, z, 0x1.555554p-5f);
    float h = 0.5f * z;
    float w = 1.0f - h;
    return w + (((1.0f - w) - h) + gqn_fma(z * z, q, -r.hi * r.lo));
}

GQN_FN float gqn_sinf(float x) {
    gqn_u32 a = gqn_as_u32(x) & 0x7fffffffu;
    if (a >= GQN_INF_BITS)
        return gqn_as_f32(GQN_NAN_BITS);
    gqn_angle r = gqn_reduce_angle(x);
    float y = r.quadrant & 1u ? gqn_cos_core(r) : gqn_sin_core(r);
    y = gqn_as_f32(gqn_as_u32(y) ^ (r.quadrant << 30 & 0x80000000u));
    return gqn_canonical(gqn_as_f32(gqn_as_u32(y) ^ (gqn_as_u32(x) & 0x80000000u)));
}

GQN_FN float gqn_cosf(float x) {
    gqn_u32 a = gqn_as_u32(x) & 0x7fffffffu;
    if (a >= GQN_INF_BITS)
        return gqn_as_f32(GQN_NAN_BITS);
    gqn_angle r = gqn_reduce_angle(x);
    float y = r.quadrant & 1u ? gqn_sin_core(r) : gqn_cos_core(r);
    return gqn_as_f32(gqn_as_u32(y) ^ ((r.quadrant + 1u) << 30 & 0x80000000u));
}

/* 1 / (1 + exp(-x)), written in terms of exp(-|x|), so that no sign of x overflows or cancels. */
GQN_FN float gqn_sigmoidf(float x) {
    float e = gqn_expf(-gqn_abs(x));
    float y = gqn_div(x < 0.0f ? e : 1.0f, 1.0f + e);
    return x != x ? gqn_as_f32(GQN_NAN_BITS) : y;
}

/* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)); the quotient restores what the rounding of 1 + e
 * lost. */
GQN_FN float gqn_softplusf(float x) {
    float e = gqn_expf(-gqn_abs(x));
    float u = 1.0f + e;
    float l = gqn_logf(u) + gqn_div(e - (u - 1.0f), u);
    float y = (x > 0.0f ? x : 0.0f) + l;
    return x != x ? gqn_as_f32(GQN_NAN_BITS) : gqn_canonical(y);
}

/* 1 / sqrt(x) in two correctly rounded steps; never an approximate reciprocal square root. */
GQN_FN float gqn_rsqrt(float x) {
    float y = gqn_div(1.0f, gqn_sqrt(x));
    return gqn_canonical(y);
}

/* An unevaluated sum hi + lo, |lo| at most half an ulp of hi. */
typedef struct gqn_pair {
    float hi, lo;
} gqn_pair;

GQN_FN gqn_pair gqn_fast_sum(float a, float b) { /* |a| >= |b| or a == 0 */
    gqn_pair r;
    r.hi = a + b;
    r.lo = b - (r.hi - a);
    return r;
}

/* log(x) of a positive finite x, to about 2^-36: 2 atanh(s), s = (m - 1) / (m + 1), the first two
 * terms as pairs. */
GQN_FN gqn_pair gqn_log_pair(float x) {
    gqn_parts p = gqn_split(x);
    float f = p.m - 1.0f;
    float g = p.m + 1.0f;
    float s = gqn_div(f, g);
    float sl = gqn_div(gqn_fma(-s, g, f) - s * (p.m - (g - 1.0f)), g);
    float z = s * s;
    float zl = gqn_fma(s, s, -z) + 2.0f * s * sl;
    float c = z * 0x1.555556p-2f;
    float cl = gqn_fma(z, 0x1.555556p-2f, -c) + gqn_fma(z, -0x1.555556p-27f, zl * 0x1.555556p-2f);
    float q = 0x1.8280d4p-4f;
    q = gqn_fma(q, z, 0x1.c70402p-4f);
    q = gqn_fma(q, z, 0x1.24921p-3f);
    q = gqn_fma(q, z, 0x1.99999ap-3f);
    gqn_pair h = gqn_fast_sum(c, z * z * q);
    h.lo += cl;
    float t = s * h.hi;
    float tl = gqn_fma(s, h.hi, -t) + gqn_fma(s, h.lo, sl * h.hi);
    gqn_pair l = gqn_fast_sum(s, t);
    l.lo += sl + tl;
    gqn_pair r = gqn_fast_sum(p.e * GQN_LN2_HI, 2.0f * l.hi);
    return gqn_fast_sum(r.hi, r.lo + gqn_fma(p.e, GQN_LN2_LO, 2.0f * l.lo));
}

/* exp(hi + lo) for any hi; two exact scalings produce overflow and underflow. */
GQN_FN float gqn_exp_pair(float hi, float lo) {
    float c = hi < -100.0f ? -100.0f : hi;
    c = c > 100.0f ? 100.0f : c;
    float d = c == hi ? lo : 0.0f;
    float t = gqn_fma(c, GQN_INV_LN2, GQN_MAGIC);
    float n = t - GQN_MAGIC;
    float r = gqn_fma(n, -GQN_LN2_HI, c);
    float m = gqn_fma(n, -GQN_LN2_LO, r);
    d += gqn_fma(n, -GQN_LN2_LO, r - m);
    r = m + d;
    d -= r - m; /* at most half an ulp of r: exp(r) + d (1 + r) is accurate enough */
    float p = 1.0f + (r + gqn_fma(r * r, gqn_exp_poly(r), gqn_fma(r, d, d)));
    gqn_i32 k = (gqn_i32)n;
    gqn_i32 k1 = k >> 1;
    float y = p * gqn_as_f32((gqn_u32)(k1 + 127) << 23);
    return gqn_canonical(y * gqn_as_f32((gqn_u32)(k - k1 + 127) << 23));
}

/* 0: y is not an integer, 1: odd, 2: even (infinities too). */
GQN_FN gqn_i32 gqn_parity(float y) {
    if (gqn_abs(y) >= 0x1p24f)
        return 2;
    gqn_i32 i = (gqn_i32)y;
    return (float)i != y ? 0 : i & 1 ? 1 : 2;
}

/* x^y for finite y != 0 and finite x > 0, x != 1. */
GQN_FN float gqn_pow_core(float x, float y) {
    gqn_pair l = gqn_log_pair(x);
    float hi = y * l.hi;
    float lo = gqn_fma(y, l.hi, -hi) + y * l.lo;
    return gqn_exp_pair(hi, lo);
}

/* ONNX Pow on floats. The exponents that models use are defined exactly: 1 -> x, 2 -> x*x, 3 ->
 * x*x*x, 0.5 -> sqrt(x); all others are computed by a log and exp of about 36 bits. Special cases
 * as in IEEE 754 pow: y = 0 or x = 1 returns 1, even for NaN; a negative x needs an integer y. */
GQN_FN float gqn_powf(float x, float y) {
    float inf = gqn_as_f32(GQN_INF_BITS);
    float a = gqn_abs(x);
    if (y == 0.0f || x == 1.0f)
        return 1.0f;
    if (x != x || y != y)
        return gqn_as_f32(GQN_NAN_BITS);
    if (y == 1.0f)
        return gqn_canonical(x);
    if (y == 2.0f)
        return gqn_canonical(x * x);
    if (y == 3.0f)
        return gqn_canonical(x * x * x);
    if (y == 0.5f && (x >= 0.0f || a == inf))
        return gqn_abs(gqn_sqrt(a));
    if (gqn_abs(y) == inf)
        return a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? inf : 0.0f;
    gqn_i32 parity = gqn_parity(y);
    float r;
    if (a == 0.0f || a == inf)
        r = (a == 0.0f) == (y > 0.0f) ? 0.0f : inf;
    else if (x < 0.0f && parity == 0)
        return gqn_as_f32(GQN_NAN_BITS);
    else
        r = a == 1.0f ? 1.0f : gqn_pow_core(a, y);
    return parity == 1 ? gqn_copysign(r, x) : r;
}

#endif
