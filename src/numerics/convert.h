/* Conversions between storage types and fp32: exact widening, one rounding to nearest even in the
 * other direction, implemented with bit operations in the dialect of dialect.h, so that results do
 * not depend on a target's own conversions or rounding mode. Invariants: any NaN becomes the
 * canonical NaN of the result type (f32 0x7fc00000, f16 0x7e00, bf16 0x7fc0); subnormals of every
 * type are exact in both directions, and never flushed here. */
#ifndef GQAC_NUMERICS_CONVERT_H
#define GQAC_NUMERICS_CONVERT_H

#ifndef GQAC_NUMERICS_DIALECT_H
#include "dialect.h"
#endif
#ifndef GQAC_NUMERICS_CONTRACT_H
#include "contract.h"
#endif

GQN_FN float gqn_f16_to_f32(gqn_u16 h) {
    gqn_u32 a = h & 0x7fffu;
    gqn_u32 normal = (a << 13) + 0x38000000u;
    gqn_u32 tiny = gqn_as_u32((float)(gqn_i32)a * 0x1p-24f);
    gqn_u32 u = a < 0x0400u ? tiny : normal;
    u = a == 0x7c00u ? GQN_INF_BITS : u;
    u |= (gqn_u32)(h & 0x8000u) << 16;
    return gqn_as_f32(a > 0x7c00u ? GQN_NAN_BITS : u);
}

GQN_FN gqn_u16 gqn_f32_to_f16(float x) {
    gqn_u32 u = gqn_as_u32(x);
    gqn_u32 a = u & 0x7fffffffu;
    gqn_u32 normal = (a - 0x38000000u + 0x0fffu + ((a >> 13) & 1u)) >> 13;
    /* the ulp of 0.5 is the quantum of f16 subnormals, so the addition rounds */
    gqn_u32 tiny = gqn_as_u32(gqn_as_f32(a < 0x38800000u ? a : 0u) + 0.5f) - 0x3f000000u;
    gqn_u32 h = a < 0x38800000u ? tiny : normal;
    h = a >= 0x47800000u ? 0x7c00u : h;
    h |= (u >> 16) & 0x8000u;
    return (gqn_u16)(a > GQN_INF_BITS ? 0x7e00u : h);
}

GQN_FN float gqn_bf16_to_f32(gqn_u16 h) {
    gqn_u32 u = (gqn_u32)h << 16;
    return gqn_as_f32((h & 0x7fffu) > 0x7f80u ? GQN_NAN_BITS : u);
}

GQN_FN gqn_u16 gqn_f32_to_bf16(float x) {
    gqn_u32 u = gqn_as_u32(x);
    gqn_u32 h = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (gqn_u16)((u & 0x7fffffffu) > GQN_INF_BITS ? 0x7fc0u : h);
}

/* The factor for x in products of --math bf16: x rounded, and +0 below GQAC_BF16_LEAST. */
GQN_FN gqn_u16 gqn_bf16_factor(float x) {
    gqn_u16 h = gqn_f32_to_bf16(x);
    return (gqn_u16)((gqn_as_u32(x) & 0x7fffffffu) < gqn_as_u32(GQAC_BF16_LEAST) ? 0u : h);
}

/* Element `index` of a packed pair: even elements are the low nibble. */
GQN_FN gqn_i32 gqn_uint4_of(gqn_u8 pair, gqn_u32 index) {
    return (gqn_i32)(((gqn_u32)pair >> ((index & 1u) << 2)) & 15u);
}

GQN_FN gqn_i32 gqn_int4_of(gqn_u8 pair, gqn_u32 index) {
    return (gqn_uint4_of(pair, index) ^ 8) - 8;
}

/* Nearest integer as a float, ties to even; keeps the sign of zero. */
GQN_FN float gqn_round_even(float x) {
    gqn_u32 u = gqn_as_u32(x);
    gqn_u32 a = u & 0x7fffffffu;
    gqn_u32 r = gqn_as_u32((gqn_as_f32(a) + 0x1p23f) - 0x1p23f);
    r = a < 0x4b000000u ? r : a;
    r |= u & 0x80000000u;
    return gqn_as_f32(a > GQN_INF_BITS ? GQN_NAN_BITS : r);
}

/* Casts to integers: truncate toward zero, clamp values out of range, convert NaN to 0. ONNX does
 * not define the last two; they are defined here so that all targets agree. */
GQN_FN gqn_i32 gqn_f32_to_i32(float x) {
    float c = x >= -0x1p31f && x < 0x1p31f ? x : 0.0f;
    gqn_i32 i = (gqn_i32)c;
    i = x < -0x1p31f ? -2147483647 - 1 : i;
    return x >= 0x1p31f ? 2147483647 : i;
}

GQN_FN gqn_u32 gqn_f32_to_u32(float x) {
    float c = x > 0.0f && x < 0x1p32f ? x : 0.0f;
    return x >= 0x1p32f ? 0xffffffffu : (gqn_u32)c;
}

GQN_FN gqn_i64 gqn_f32_to_i64(float x) {
    float c = x >= -0x1p63f && x < 0x1p63f ? x : 0.0f;
    gqn_i64 i = (gqn_i64)c;
    gqn_i64 most = (gqn_i64)(((gqn_u64)1 << 63) - 1u);
    i = x < -0x1p63f ? -most - 1 : i;
    return x >= 0x1p63f ? most : i;
}

GQN_FN gqn_u64 gqn_f32_to_u64(float x) {
    float c = x > 0.0f && x < 0x1p64f ? x : 0.0f;
    return x >= 0x1p64f ? ~(gqn_u64)0 : (gqn_u64)c;
}

/* For narrow types; lo and hi are the limits of the type, e.g. -128, 127. */
GQN_FN gqn_i32 gqn_f32_to_int(float x, gqn_i32 lo, gqn_i32 hi) {
    gqn_i32 i = gqn_f32_to_i32(x);
    i = i < lo ? lo : i;
    return i > hi ? hi : i;
}

/* Quantisation: round half to even, then clamp; NaN becomes 0, clamped. */
GQN_FN gqn_i32 gqn_quantise(float x, gqn_i32 lo, gqn_i32 hi) {
    return gqn_f32_to_int(gqn_round_even(x), lo, hi);
}

#endif
