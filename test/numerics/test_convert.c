/* convert.h against independent methods: double arithmetic (exact for every quotient here), the
 * compiler's _Float16 where it has one, and plain loops. All 65,536 codes of f16 and bf16 are
 * converted in both directions; conversions from fp32 are sampled, or, with GQAC_TEST_FULL,
 * exhaustive. */
#include "numerics/convert.h"
#include "unit.h"

#include <limits.h>
#include <math.h>

static bool is_nan16(gqn_u32 h, gqn_u32 inf) {
    return (h & 0x7fffu) > inf;
}

/* The value of a 16-bit code with this number of mantissa bits, computed from the definition. */
static double value16(gqn_u32 h, int mantissa, int bias) {
    int e = (int)((h & 0x7fffu) >> mantissa);
    int top = (1 << (15 - mantissa)) - 1;
    double f = (double)(h & ((1u << mantissa) - 1u));
    double v;
    if (e == top)
        v = f != 0.0 ? (double)NAN : (double)INFINITY;
    else if (e == 0)
        v = ldexp(f, 1 - bias - mantissa);
    else
        v = ldexp(f + ldexp(1.0, mantissa), e - bias - mantissa);
    return h & 0x8000u ? -v : v;
}

static void test_widen(void) {
    unsigned bad = 0;
    for (gqn_u32 h = 0; h < 65536; h++) {
        double f = value16(h, 10, 15), b = value16(h, 7, 127);
        gqn_u32 got_f = gqn_as_u32(gqn_f16_to_f32((gqn_u16)h));
        gqn_u32 got_b = gqn_as_u32(gqn_bf16_to_f32((gqn_u16)h));
        bad += got_f != (isnan(f) ? 0x7fc00000u : gqn_as_u32((float)f));
        bad += got_b != (isnan(b) ? 0x7fc00000u : gqn_as_u32((float)b));
    }
    CU_ASSERT_EQUAL(bad, 0);
}

static void test_round_trip(void) {
    unsigned bad = 0;
    for (gqn_u32 h = 0; h < 65536; h++) {
        gqn_u32 f = is_nan16(h, 0x7c00u) ? 0x7e00u : h;
        gqn_u32 b = is_nan16(h, 0x7f80u) ? 0x7fc0u : h;
        bad += gqn_f32_to_f16(gqn_f16_to_f32((gqn_u16)h)) != f;
        bad += gqn_f32_to_bf16(gqn_bf16_to_f32((gqn_u16)h)) != b;
    }
    CU_ASSERT_EQUAL(bad, 0);
}

/* Rounds by dividing by the quantum in double (exact) and rint: ties to even by the default mode.
 * bottom and top are the exponents of the smallest and the largest normal number. */
static double round_by_double(float x, int mantissa, int bottom, int top) {
    int e = x == 0.0f ? bottom : ilogb(x);
    e = e < bottom ? bottom : e;
    double v = ldexp(rint(ldexp((double)x, mantissa - e)), e - mantissa);
    return fabs(v) >= ldexp(1.0, top + 1) ? copysign((double)INFINITY, v) : v;
}

static bool narrow_agrees(float x) {
    gqn_u16 f = gqn_f32_to_f16(x), b = gqn_f32_to_bf16(x);
    if (isnan(x))
        return f == 0x7e00u && b == 0x7fc0u;
    if (isinf(x))
        return f == (x < 0.0f ? 0xfc00u : 0x7c00u) && b == (x < 0.0f ? 0xff80u : 0x7f80u);
    double want_f = round_by_double(x, 10, -14, 15), want_b = round_by_double(x, 7, -126, 127);
    bool ok = value16(f, 10, 15) == want_f && value16(b, 7, 127) == want_b;
    ok = ok && (f >> 15 != 0) == (signbit(x) != 0) && (b >> 15 != 0) == (signbit(x) != 0);
#ifdef __FLT16_MANT_DIG__
    _Float16 half = (_Float16)x;
    gqn_u16 bits;
    __builtin_memcpy(&bits, &half, sizeof bits);
    ok = ok && bits == f;
#endif
    return ok;
}

static void test_narrow(void) {
    unsigned bad = 0;
    gqn_u64 stride = unit_full() ? 1 : 509;
    for (gqn_u64 u = 0; u <= 0xffffffffu; u += stride)
        bad += !narrow_agrees(gqn_as_f32((gqn_u32)u));
    /* every tie between neighbours of both types, and the floats around it */
    for (gqn_u32 h = 0; h < 65536; h++)
        for (gqn_u32 d = 0; d < 3; d++) {
            gqn_u32 f =
                gqn_as_u32((gqn_f16_to_f32((gqn_u16)h) + gqn_f16_to_f32((gqn_u16)(h + 1u))) * 0.5f);
            bad += !narrow_agrees(gqn_as_f32(f + d - 1u));
            bad += !narrow_agrees(gqn_as_f32((h << 16) + 0x8000u + d - 1u));
        }
    CU_ASSERT_EQUAL(bad, 0);
}

static void test_int4(void) {
    unsigned bad = 0;
    for (gqn_u32 byte = 0; byte < 256; byte++)
        for (gqn_u32 i = 0; i < 4; i++) {
            gqn_i32 u = (gqn_i32)(i % 2 ? byte / 16 : byte % 16);
            bad += gqn_uint4_of((gqn_u8)byte, i) != u;
            bad += gqn_int4_of((gqn_u8)byte, i) != (u < 8 ? u : u - 16);
        }
    CU_ASSERT_EQUAL(bad, 0);
}

static double clamp(double x, double lo, double hi) {
    return isnan(x) ? 0.0 : x < lo ? lo : x > hi ? hi : x;
}

static bool integers_agree(float x) {
    double t = trunc((double)x);
    bool ok = (double)gqn_f32_to_i32(x) == clamp(t, INT_MIN, INT_MAX);
    ok = ok && (double)gqn_f32_to_u32(x) == clamp(t, 0.0, UINT_MAX);
    ok = ok && (double)gqn_f32_to_int(x, -128, 127) == clamp(t, -128.0, 127.0);
    /* the largest 64-bit integers are not doubles: compare below the limit, then at the limit
     * itself */
    ok = ok && (t >= 0x1p63 ? gqn_f32_to_i64(x) == LLONG_MAX
                            : (double)gqn_f32_to_i64(x) == clamp(t, -0x1p63, 0x1p63));
    ok = ok && (t >= 0x1p64 ? gqn_f32_to_u64(x) == ULLONG_MAX
                            : (double)gqn_f32_to_u64(x) == clamp(t, 0.0, 0x1p64));
    double r = clamp(rint((double)x), -128.0, 127.0);
    ok = ok && (double)gqn_quantise(x, -128, 127) == r;
    gqn_u32 want = isnan(x) ? 0x7fc00000u : gqn_as_u32(rintf(x));
    return ok && gqn_as_u32(gqn_round_even(x)) == want;
}

static void test_integers(void) {
    unsigned bad = 0;
    for (gqn_u64 u = 0; u <= 0xffffffffu; u += unit_full() ? 101 : 1021)
        bad += !integers_agree(gqn_as_f32((gqn_u32)u));
    for (gqn_u32 e = 0; e < 256; e++)
        for (gqn_u32 d = 0; d < 9; d++) {
            bad += !integers_agree(gqn_as_f32((e << 23) + d - 4u));
            bad += !integers_agree(gqn_as_f32(((e << 23) + d - 4u) ^ 0x80000000u));
        }
    for (int i = -600; i <= 600; i++)
        bad += !integers_agree((float)i * 0.25f);
    CU_ASSERT_EQUAL(bad, 0);
}

static const unit_case cases[] = {
    {"f16 and bf16 widen exactly", test_widen},
    {"f16 and bf16 round trip", test_round_trip},
    {"f32 narrows to nearest, ties to even", test_narrow},
    {"int4 and uint4, low nibble first", test_int4},
    {"f32 to integers clamps, rounds and takes NaN to 0", test_integers},
};

int main(int argc, char **argv) {
    return unit_run("convert", cases, sizeof cases / sizeof *cases, argc, argv);
}
