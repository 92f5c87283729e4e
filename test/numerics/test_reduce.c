/* reduce.h and contract.h: the chains equal a second, differently written evaluation of the same
 * definition, zero padding after the end changes no bit, and other orders do change bits (which
 * shows that the comparisons can detect them). */
#include "numerics/contract.h"
#include "numerics/math.h"
#include "numerics/reduce.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 2100 };

static gqn_u32 state = 1;

static float next_value(void) {
    state = state * 1664525u + 1013904223u;
    return ((float)(gqn_i32)(state >> 8) - 0x1p23f) * 0x1p-20f;
}

static void fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = next_value();
}

static bool same(float a, float b) {
    return gqn_as_u32(a) == gqn_as_u32(b);
}

/* Accumulators outside, k in blocks of the caller's size: how a cache-blocked kernel stores and
 * reloads its accumulator. */
static float dot_blocked(const float *a, const float *b, size_t k, size_t block) {
    float total = 0.0f, piece = 0.0f;
    for (size_t start = 0; start < k; start += block)
        for (size_t i = start; i < k && i < start + block; i++) {
            if (i % GQAC_K_PIECE == 0 && i > 0) {
                total = i == GQAC_K_PIECE ? piece : total + piece;
                piece = 0.0f;
            }
            piece = fmaf(a[i], b[i], piece);
        }
    return k > GQAC_K_PIECE ? total + piece : piece;
}

static void test_dot(void) {
    static float a[MOST], b[MOST], strided[3 * MOST];
    fill(a, MOST);
    fill(b, MOST);
    for (size_t i = 0; i < MOST; i++)
        strided[3 * (MOST - 1 - i)] = b[i];
    unsigned bad = 0, other = 0;
    for (size_t k = 0; k <= MOST; k += k < 40 ? 1 : 23) {
        float want = gqn_dot_chain(a, 1, b, 1, k);
        bad += !same(want, dot_blocked(a, b, k, 1));
        bad += !same(want, dot_blocked(a, b, k, 100));
        bad += !same(want, gqn_dot_chain(a, 1, strided + 3 * (MOST - 1), -3, k));
        float backwards = 0.0f;
        for (size_t i = k; i-- > 0;)
            backwards = fmaf(a[i], b[i], backwards);
        other += !same(want, backwards);
    }
    CU_ASSERT_EQUAL(bad, 0);
    CU_ASSERT(other > 50);
    float tiny = -0x1p-100f, one[] = {0x1p-100f};
    CU_ASSERT(same(gqn_dot_chain(&tiny, 1, one, 1, 1), -0.0f));
    CU_ASSERT(same(gqn_dot_chain(NULL, 1, NULL, 1, 0), 0.0f));
}

/* The same reductions over rows padded to whole groups of lanes, group by group. */
static float padded(const float *x, size_t n, int kind, float centre) {
    float lane[16], group[16];
    for (size_t j = 0; j < 16; j++)
        lane[j] = kind == 3 ? -INFINITY : 0.0f;
    for (size_t i = 0; i < n; i += 16) {
        size_t have = n - i < 16 ? n - i : 16;
        for (size_t j = 0; j < 16; j++) {
            group[j] = j < have ? x[i + j] : kind == 3 ? -INFINITY : 0.0f;
            if (kind == 2)
                group[j] = j < have ? group[j] - centre : 0.0f;
        }
        for (size_t j = 0; j < 16; j++)
            lane[j] = kind == 0   ? lane[j] + group[j]
                      : kind == 3 ? (group[j] > lane[j] ? group[j] : lane[j])
                                  : fmaf(group[j], group[j], lane[j]);
    }
    float l8[8], l4[4];
    for (size_t j = 0; j < 8; j++)
        l8[j] = kind == 3 ? fmaxf(lane[j], lane[j + 8]) : lane[j] + lane[j + 8];
    for (size_t j = 0; j < 4; j++)
        l4[j] = kind == 3 ? fmaxf(l8[j], l8[j + 4]) : l8[j] + l8[j + 4];
    if (kind == 3)
        return fmaxf(fmaxf(l4[0], l4[2]), fmaxf(l4[1], l4[3]));
    return (l4[0] + l4[2]) + (l4[1] + l4[3]);
}

static void test_lanes(void) {
    static float x[MOST];
    fill(x, MOST);
    x[3] = x[17] = -0.0f;
    unsigned bad = 0, other = 0;
    for (size_t n = 0; n <= MOST; n += n < 70 ? 1 : 29) {
        bad += !same(gqn_lane_sum(x, n), padded(x, n, 0, 0.0f));
        bad += !same(gqn_lane_sum_sq(x, n), padded(x, n, 1, 0.0f));
        bad += !same(gqn_lane_sum_sq_about(x, n, 1.25f), padded(x, n, 2, 1.25f));
        bad += !same(gqn_lane_max(x, n), padded(x, n, 3, 0.0f));
        float plain = 0.0f;
        for (size_t i = 0; i < n; i++)
            plain += x[i];
        other += !same(plain, gqn_lane_sum(x, n));
    }
    CU_ASSERT_EQUAL(bad, 0);
    CU_ASSERT(other > 50);
}

/* A row followed by zeros, or by -inf for the maximum, has the bits of the row alone. */
static void test_tails(void) {
    static float x[512];
    unsigned bad = 0;
    for (size_t n = 0; n < 200; n++) {
        memset(x, 0, sizeof x);
        fill(x, n);
        if (n % 3 == 0)
            for (size_t i = 0; i < n; i++)
                x[i] = -0.0f;
        for (size_t more = 0; more < 40; more++) {
            bad += !same(gqn_lane_sum(x, n), gqn_lane_sum(x, n + more));
            bad += !same(gqn_lane_sum_sq(x, n), gqn_lane_sum_sq(x, n + more));
        }
        float max = gqn_lane_max(x, n);
        for (size_t more = 0; more < 40; more++) {
            x[n + more] = -INFINITY;
            bad += !same(max, gqn_lane_max(x, n + more + 1));
        }
    }
    CU_ASSERT_EQUAL(bad, 0);
}

static void test_max_rule(void) {
    float x[] = {NAN, -3.0f, NAN, -1.0f, NAN};
    CU_ASSERT(same(gqn_lane_max(x, 5), -1.0f));
    CU_ASSERT(same(gqn_lane_max(x, 1), -INFINITY));
    CU_ASSERT(same(gqn_lane_max(x, 0), -INFINITY));
    float zeros[] = {-0.0f, 0.0f, 0.0f};
    CU_ASSERT(same(gqn_lane_max(zeros, 3), -0.0f));
    CU_ASSERT(same(gqn_lane_max(zeros + 1, 2), 0.0f));
}

static void test_profile(void) {
    char id[GQAC_PROFILE_SIZE], want[200];
    gqac_numerics_profile(id, "ref", "model");
    snprintf(want, sizeof want, "gqac-n%d/ref/model/k%d.t%d.s%d.l%d", GQAC_NUMERICS_VERSION,
             GQAC_K_PIECE, GQAC_KEY_TILE, GQAC_KEY_SPLIT, GQAC_LANES);
    CU_ASSERT_STRING_EQUAL(id, want);
#if GQAC_KEY_TILE == 64 && GQAC_KEY_SPLIT == 512
    CU_ASSERT_STRING_EQUAL(id, "gqac-n1/ref/model/k512.t64.s512.l16");
#endif
    char name[200];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    gqac_numerics_profile(id, name, name);
    CU_ASSERT(strlen(id) < sizeof id);
    CU_ASSERT_PTR_NOT_NULL(strstr(id, "/k512."));
}

static const unit_case cases[] = {
    {"dot chain: pieces of 512, any blocking, any stride", test_dot},
    {"lane reductions equal their padded form", test_lanes},
    {"zero tails change no bit", test_tails},
    {"maximum: NaN passed over, first zero stays", test_max_rule},
    {"profile id names the constants", test_profile},
};

int main(int argc, char **argv) {
    return unit_run("reduce", cases, sizeof cases / sizeof *cases, argc, argv);
}
