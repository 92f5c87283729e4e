/* The same bits with every compiler: digests of math.h, convert.h and reduce.h over a stride of all
 * bit patterns, against constants. check_compilers.sh builds this program with every available
 * compiler and a range of flags. A result that changes by one bit is a change of the contract and
 * requires a new GQAC_NUMERICS_VERSION. The loops run over blocks, so that an optimiser vectorises
 * them. */
#include "numerics/contract.h"
#include "numerics/convert.h"
#include "numerics/math.h"
#include "numerics/reduce.h"
#include "unit.h"

#include <stdio.h>

enum { BLOCK = 1024 };

/* FNV-1a over 32-bit words: order matters, and it is independent of byte order. */
static gqn_u64 mix(gqn_u64 digest, gqn_u32 word) {
    return (digest ^ word) * 0x100000001b3u;
}

typedef void (*block_fn)(float *restrict y, const float *restrict x);

#define BLOCK_FN(name, expression)                                                                 \
    static void name(float *restrict y, const float *restrict x) {                                 \
        for (int i = 0; i < BLOCK; i++) {                                                          \
            float v = x[i];                                                                        \
            y[i] = (expression);                                                                   \
        }                                                                                          \
    }

BLOCK_FN(block_exp, gqn_expf(v))
BLOCK_FN(block_log, gqn_logf(v))
BLOCK_FN(block_tanh, gqn_tanhf(v))
BLOCK_FN(block_erf, gqn_erff(v))
BLOCK_FN(block_sin, gqn_sinf(v))
BLOCK_FN(block_cos, gqn_cosf(v))
BLOCK_FN(block_sigmoid, gqn_sigmoidf(v))
BLOCK_FN(block_softplus, gqn_softplusf(v))
BLOCK_FN(block_rsqrt, gqn_rsqrt(v))
BLOCK_FN(block_pow, gqn_powf(v, x[i ^ 5]))
BLOCK_FN(block_pow_near, gqn_powf(gqn_abs(v), 12.75f - (float)(i & 31)))
BLOCK_FN(block_f16, gqn_f16_to_f32(gqn_f32_to_f16(v)))
BLOCK_FN(block_bf16, gqn_bf16_to_f32(gqn_f32_to_bf16(v)))
BLOCK_FN(block_round, gqn_round_even(v))
BLOCK_FN(block_i32, gqn_as_f32((gqn_u32)gqn_f32_to_i32(v)))
BLOCK_FN(block_i64, gqn_as_f32((gqn_u32)(gqn_f32_to_i64(v) >> 20)))
BLOCK_FN(block_u64, gqn_as_f32((gqn_u32)(gqn_f32_to_u64(v) >> 20)))

static const struct golden {
    const char *name;
    block_fn run;
    gqn_u64 digest;
} golden[] = {
    {"exp", block_exp, 0x6596c4b2c4908544},
    {"log", block_log, 0xec1724ad704398dd},
    {"tanh", block_tanh, 0x5f043f763ce9274f},
    {"erf", block_erf, 0xb7ccd2d43aba64db},
    {"sin", block_sin, 0x31763c2fe4639db1},
    {"cos", block_cos, 0x9bad327580f6d3dc},
    {"sigmoid", block_sigmoid, 0x735bac5ff804e0a5},
    {"softplus", block_softplus, 0x88b1db625748a052},
    {"rsqrt", block_rsqrt, 0xa181ffd7fe77795a},
    {"pow", block_pow, 0x2a7198a56060f62c},
    {"pow_near", block_pow_near, 0x541c16de2174abfd},
    {"f16", block_f16, 0xa99951f1729aa325},
    {"bf16", block_bf16, 0x74309cfeec8f2325},
    {"round", block_round, 0xa99a8efe49dc3063},
    {"i32", block_i32, 0x6abdcc6ee8e6b582},
    {"i64", block_i64, 0xbb10f25ebdcacd0f},
    {"u64", block_u64, 0x9247583b2a0cd64f},
};

static void test_digests(void) {
    static float x[BLOCK], y[BLOCK];
    for (size_t f = 0; f < sizeof golden / sizeof *golden; f++) {
        gqn_u64 digest = 0xcbf29ce484222325u;
        gqn_u64 bits = 0;
        while (bits <= 0xffffffffu) {
            for (int i = 0; i < BLOCK; i++, bits += 4099)
                x[i] = gqn_as_f32((gqn_u32)bits);
            golden[f].run(y, x);
            for (int i = 0; i < BLOCK; i++)
                digest = mix(digest, gqn_as_u32(y[i]));
        }
        printf("  %-8s 0x%016llx\n", golden[f].name, (unsigned long long)digest);
        CU_ASSERT_EQUAL(digest, golden[f].digest);
    }
}

static void test_reductions(void) {
    static float x[3 * BLOCK], y[3 * BLOCK];
    for (gqn_u32 i = 0; i < 3 * BLOCK; i++) {
        x[i] = (float)(gqn_i32)(i * 2654435761u >> 8) * 0x1p-20f - 8.0f;
        y[i] = gqn_sinf(x[i]);
    }
    gqn_u64 digest = 0xcbf29ce484222325u;
    for (size_t n = 0; n < 3 * BLOCK; n += 7) {
        digest = mix(digest, gqn_as_u32(gqn_dot_chain(x, 1, y, 1, n)));
        digest = mix(digest, gqn_as_u32(gqn_lane_sum(x, n)));
        digest = mix(digest, gqn_as_u32(gqn_lane_sum_sq(x, n)));
        digest = mix(digest, gqn_as_u32(gqn_lane_sum_sq_about(x, n, 0.1f)));
        digest = mix(digest, gqn_as_u32(gqn_lane_max(y, n)));
    }
    printf("  reduce   0x%016llx\n", (unsigned long long)digest);
    CU_ASSERT_EQUAL(digest, 0xffd1457b9228eebdu);
}

static const unit_case cases[] = {
    {"functions and conversions", test_digests},
    {"reductions", test_reductions},
};

int main(int argc, char **argv) {
    return unit_run("math bits", cases, sizeof cases / sizeof *cases, argc, argv);
}
