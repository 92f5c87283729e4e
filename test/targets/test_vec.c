/* vec.h: each level that this machine can run computes the bits of the scalar one, operation by
 * operation: on extreme values of formats (zeros, subnormals, infinities, NaN), on random bits, on
 * every f16 and bf16, and on tails that end before a page that cannot be read. AVX-512 is also
 * built with SIMDe if its headers are installed, so that its formulas are tested on machines
 * without it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "numerics/convert.h"
#include "numerics/math.h"
#include "targets/cpu/cpu.h"
#include "targets/probe_vec.h"
#include "unit.h"

extern const vec_probe probe_vec_scalar;
#if defined(__x86_64__)
extern const vec_probe probe_vec_avx2, probe_vec_avx512, probe_vec_avx512vnni, probe_vec_avx512bf16;
#endif
#ifdef PROBE_SIMDE
extern const vec_probe probe_vec_avx512_simde, probe_vec_avx512vnni_simde;
#endif

static const vec_probe *const plain = &probe_vec_scalar;

/* Lists the other levels that this machine can run; returns their number. */
static int others(const vec_probe **found) {
    int n = 0;
#if defined(__x86_64__)
    static const vec_probe *const all[] = {
        &probe_vec_avx2,
#ifndef GQAC_NO_AVX512
        &probe_vec_avx512,
        &probe_vec_avx512vnni,
        &probe_vec_avx512bf16,
#endif
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const void *level;
        gqac_diag diag = {0};
        setenv("GQAC_CPU", all[i]->level, 1);
        if (cpu_level_pick(&level, &diag) == GQAC_OK)
            found[n++] = all[i];
        unsetenv("GQAC_CPU");
    }
#endif
#ifdef PROBE_SIMDE
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c")) {
        found[n++] = &probe_vec_avx512_simde;
        found[n++] = &probe_vec_avx512vnni_simde;
    }
#endif
    return n;
}

enum { MOST = 8 };

static uint32_t drawn(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static const uint32_t edges[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000,
    0x00800001, 0x3f800000, 0xbf800000, 0x3f800001, 0x3f7fffff, 0xbf7fffff, 0x34000000, 0x33800000,
    0x4b000000, 0x4b400000, 0xcb400000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
    0xffc00000, 0x7f800001, 0xffffffff, 0x7fabcdef, 0xc2aeac4f, 0xc2aeac50, 0x42b17218, 0x42b17217,
    0x42b17219, 0x1f800000, 0x5f800000, 0x3e99999a};
enum { EDGES = (int)(sizeof edges / sizeof *edges) };

static bool is_nan(uint32_t bits) {
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* The first lane whose bits differ, or -1. Two NaN are equal unless payloads count. */
static int differs(const void *actual, const void *expected, bool exact) {
    for (int i = 0; i < 16; i++) {
        uint32_t x, y;
        memcpy(&x, (const char *)actual + 4 * i, sizeof x);
        memcpy(&y, (const char *)expected + 4 * i, sizeof y);
        if (x != y && (exact || !is_nan(x) || !is_nan(y)))
            return i;
    }
    return -1;
}

static void tell(const vec_probe *p, const char *what, const void *actual, const void *expected,
                 int lane) {
    uint32_t x, y;
    memcpy(&x, (const char *)actual + 4 * lane, sizeof x);
    memcpy(&y, (const char *)expected + 4 * lane, sizeof y);
    printf("%s: %s, lane %d: %08x, scalar %08x\n", p->level, what, lane, x, y);
    CU_FAIL("a level differs from the scalar one");
}

static bool agree_floats(const vec_probe *p, const void *a, const void *b, const void *c) {
    for (int i = 0; i < p->n_floats; i++) {
        float x[16], y[16];
        p->floats[i].run(x, a, b, c);
        plain->floats[i].run(y, a, b, c);
        const int lane = differs(x, y, p->floats[i].exact);
        if (lane >= 0) {
            tell(p, p->floats[i].name, x, y, lane);
            return false;
        }
    }
    for (int i = 0; i < p->n_masks; i++) {
        const uint32_t x = p->masks[i].run(a, b), y = plain->masks[i].run(a, b);
        if (x != y) {
            printf("%s: %s: %04x, scalar %04x\n", p->level, p->masks[i].name, x, y);
            CU_FAIL("a mask differs");
            return false;
        }
    }
    return true;
}

/* All pairs of extreme values with a varying third one, then random bits. */
static void floats(void) {
    const vec_probe *found[MOST];
    const int n = others(found);
    for (int l = 0; l < n; l++) {
        uint64_t state = 5;
        bool good = found[l]->n_floats == plain->n_floats && found[l]->n_masks == plain->n_masks;
        CU_ASSERT_TRUE(good);
        for (int pair = 0; pair < EDGES * EDGES && good; pair++)
            for (int third = 0; third < EDGES && good; third += 16) {
                uint32_t a[16], b[16], c[16];
                for (int i = 0; i < 16; i++) {
                    a[i] = edges[pair / EDGES];
                    b[i] = edges[(pair + i) % EDGES];
                    c[i] = edges[(third + i) % EDGES];
                }
                good = agree_floats(found[l], a, b, c);
            }
        for (int turn = 0; turn < 40000 && good; turn++) {
            uint32_t a[16], b[16], c[16];
            for (int i = 0; i < 16; i++) {
                a[i] = drawn(&state);
                b[i] = turn & 1 ? drawn(&state) : (drawn(&state) & 0x81ffffffu) + 0x3e000000u;
                c[i] = turn & 2 ? drawn(&state) : (drawn(&state) & 0x81ffffffu) + 0x3e000000u;
                if (turn & 1) /* sums that cancel */
                    c[i] = (turn & 4 ? a[i] ^ 0x80000000u : c[i]) + (drawn(&state) & 3u);
            }
            good = agree_floats(found[l], a, b, c);
        }
    }
}

static bool agree_ints(const vec_probe *p, const int32_t *a, const int32_t *b, const int32_t *c) {
    for (int i = 0; i < p->n_ints; i++) {
        int32_t x[16], y[16];
        p->ints[i].run(x, a, b, c);
        plain->ints[i].run(y, a, b, c);
        const int lane = differs(x, y, true);
        if (lane >= 0) {
            tell(p, p->ints[i].name, x, y, lane);
            return false;
        }
    }
    for (int shift = 0; shift < 32; shift++) {
        int32_t x[16], y[16];
        p->shift(x, a, shift);
        plain->shift(y, a, shift);
        const int lane = differs(x, y, true);
        if (lane >= 0) {
            tell(p, "shr", x, y, lane);
            return false;
        }
    }
    float x[16], y[16];
    p->of_ints(x, a);
    plain->of_ints(y, a);
    if (differs(x, y, true) >= 0)
        tell(p, "of_v16i", x, y, differs(x, y, true));
    return differs(x, y, true) < 0;
}

/* Words of random bytes; every third time extreme bytes, with which 16-bit sums of products would
 * saturate. */
static void draw_words(int32_t *words, int n, int turn, uint64_t *state) {
    static const uint32_t ends[] = {0xffffffff, 0x80808080, 0x7f7f7f7f, 0xff80ff80,
                                    0x00000000, 0x01010101, 0x80000000, 0x7fffffff};
    for (int i = 0; i < n; i++)
        words[i] = (int32_t)(turn % 3 == 0 ? ends[drawn(state) % 8] : drawn(state));
}

static void ints(void) {
    const vec_probe *found[MOST];
    const int n = others(found);
    for (int l = 0; l < n; l++) {
        uint64_t state = 7;
        bool good = found[l]->n_ints == plain->n_ints;
        CU_ASSERT_TRUE(good);
        for (int turn = 0; turn < 6000 && good; turn++) {
            int32_t a[16], b[16], c[16];
            draw_words(a, 16, turn, &state);
            draw_words(b, 16, turn, &state);
            draw_words(c, 16, turn, &state);
            good = agree_ints(found[l], a, b, c);
        }
        for (int turn = 0; turn < 6000 && good; turn++) {
            int32_t u[128], s[128], x[16], y[16];
            draw_words(u, 128, turn, &state);
            draw_words(s, 128, turn, &state);
            found[l]->nibbles(x, u, s, turn & 1);
            plain->nibbles(y, u, s, turn & 1);
            good = differs(x, y, true) < 0;
            if (!good)
                tell(found[l], "nibbles", x, y, differs(x, y, true));
        }
    }
}

/* Every half-integer and its neighbours, up to 127. */
static void bytes(void) {
    const vec_probe *found[MOST + 1];
    const int n = others(found);
    found[n] = plain;
    for (int l = 0; l <= n; l++) {
        bool good = true;
        for (int first = -254 * 2; first <= 254 * 2 && good; first += 16) {
            float x[16];
            int8_t y[16];
            for (int i = 0; i < 16; i++) {
                const float quarters = (float)(first + i) / 4;
                x[i] = quarters > 127 ? 127 : nextafterf(quarters, i % 3 ? quarters : 0);
            }
            found[l]->to_i8(y, x);
            for (int i = 0; i < 16; i++)
                good = good && y[i] == (int)nearbyintf(x[i]);
        }
        CU_ASSERT_TRUE(good);
    }
}

static void transposes(void) {
    const vec_probe *found[MOST];
    const int n = others(found);
    float from[16 * 20], to[16 * 24];
    for (int i = 0; i < 16 * 20; i++)
        from[i] = (float)i;
    for (int l = -1; l < n; l++) { /* including the scalar one */
        memset(to, 0xff, sizeof to);
        (l < 0 ? plain : found[l])->transpose(to, from);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 24; j++)
                CU_ASSERT_TRUE(j < 16 ? to[i * 24 + j] == from[j * 20 + i]
                                      : to[i * 24 + j] != to[i * 24 + j]);
    }
}

/* The definition itself, compared with sums in 64 bits. */
static void dots_are_exact(void) {
    uint64_t state = 9;
    for (int turn = 0; turn < 2000; turn++) {
        int32_t a[16], b[16], c[16] = {0}, x[16];
        draw_words(a, 16, turn, &state);
        draw_words(b, 16, turn, &state);
        for (int op = 0; op < plain->n_ints; op++) {
            if (strcmp(plain->ints[op].name, "dot_bytes") != 0)
                continue;
            plain->ints[op].run(x, a, b, c);
            for (int i = 0; i < 16; i++) {
                int64_t sum = 0;
                for (int byte = 0; byte < 4; byte++) {
                    const int64_t u = (int64_t)((uint32_t)a[i] >> 8 * byte & 0xffu);
                    const int64_t s = (int64_t)((uint32_t)b[i] >> 8 * byte & 0xffu);
                    sum += u * (s < 128 ? s : s - 256);
                }
                CU_ASSERT_EQUAL(x[i], sum);
            }
        }
    }
}

/* Every 16-bit pattern at every level; the scalar one is compared with the conversions of
 * numerics. */
static void halves(void) {
    const vec_probe *found[MOST];
    const int n = others(found);
    for (uint32_t first = 0; first < 0x10000; first += 16) {
        uint16_t p[16];
        float f16[16], bf16[16], y[16];
        for (uint32_t i = 0; i < 16; i++) {
            p[i] = (uint16_t)(first + i);
            y[i] = gqn_f16_to_f32(p[i]);
        }
        plain->load_f16(f16, p);
        CU_ASSERT_TRUE(differs(f16, y, true) < 0);
        plain->load_bf16(bf16, p);
        for (int l = 0; l < n; l++) {
            float x[16];
            found[l]->load_f16(x, p);
            if (differs(x, f16, false) >= 0)
                tell(found[l], "load_f16", x, f16, differs(x, f16, false));
            found[l]->load_bf16(x, p);
            if (differs(x, bf16, false) >= 0)
                tell(found[l], "load_bf16", x, bf16, differs(x, bf16, false));
        }
    }
}

/* Tails of 0..16 floats at the end of accessible memory. */
static void tails(void) {
    const vec_probe *found[MOST + 1];
    const int n = others(found);
    found[n] = plain;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(memory, MAP_FAILED);
    CU_ASSERT_EQUAL_FATAL(mprotect(memory + page, page, PROT_NONE), 0);
    float *end = (float *)(void *)(memory + page);
    for (int l = 0; l <= n; l++)
        for (int count = 0; count <= 16; count++) {
            float x[16], y[16] = {0}, fresh[16];
            for (int i = 0; i < 16; i++) {
                fresh[i] = (float)(100 + i);
                end[i - 16] = (float)(i + 1);
            }
            memcpy(y, end - count, (size_t)count * sizeof *y);
            found[l]->load_n(x, end - count, count);
            CU_ASSERT_TRUE(differs(x, y, true) < 0);
            found[l]->store_n(end - count, fresh, count);
            for (int i = 0; i < 16; i++) {
                const int at = i - (16 - count);
                CU_ASSERT_EQUAL(end[i - 16], at >= 0 ? fresh[at] : (float)(i + 1));
            }
        }
    munmap(memory, 2 * page);
}

static void masks(void) {
    const vec_probe *found[MOST + 1];
    const int n = others(found);
    found[n] = plain;
    float yes[16], no[16];
    for (int i = 0; i < 16; i++) {
        yes[i] = (float)i;
        no[i] = -(float)i - 1.0f;
    }
    for (int l = 0; l <= n; l++) {
        bool good = true;
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            float x[16];
            good = good && found[l]->bits(bits) == bits;
            if (bits % 257 == 0) {
                found[l]->select(x, bits, yes, no);
                for (int i = 0; i < 16; i++)
                    good = good && x[i] == (bits >> i & 1u ? yes[i] : no[i]);
            }
        }
        for (int from = -3; from < 20; from++)
            for (int to = -3; to < 20; to++) {
                uint32_t expected = 0;
                for (int i = 0; i < 16; i++)
                    expected |= (uint32_t)(from <= i && i < to) << i;
                good = good && found[l]->range(from, to) == expected;
            }
        CU_ASSERT_TRUE(good);
    }
}

static void folds(void) {
    const vec_probe *found[MOST];
    const int n = others(found);
    uint64_t state = 11;
    for (int turn = 0; turn < 20000; turn++) {
        uint32_t bits[16];
        float x[16];
        for (int i = 0; i < 16; i++)
            bits[i] = turn & 1 ? drawn(&state) : (drawn(&state) & 0x83ffffffu) + 0x3c000000u;
        memcpy(x, bits, sizeof x);
        const float sum = plain->fold(x), most = plain->fold_max(x);
        for (int l = 0; l < n; l++) {
            const float other = found[l]->fold(x), top = found[l]->fold_max(x);
            CU_ASSERT_TRUE(memcmp(&other, &sum, sizeof sum) == 0 || (isnan(other) && isnan(sum)));
            CU_ASSERT_EQUAL(memcmp(&top, &most, sizeof most), 0);
        }
    }
}

/* The scalar exp equals gqn_expf, and the others equal it: around each limit and over all
 * exponents. */
static void exponentials(void) {
    const vec_probe *found[MOST + 1];
    const int n = others(found), op = plain->n_floats - 1;
    found[n] = plain;
    CU_ASSERT_STRING_EQUAL_FATAL(plain->floats[op].name, "exp");
    bool good = true;
    const uint32_t step = unit_full() ? 16 * 61 : 16 * 8191;
    for (uint64_t first = 0; first < 0x100000000u && good; first += step) {
        uint32_t bits[16];
        float a[16], x[16], y[16];
        for (uint32_t i = 0; i < 16; i++)
            bits[i] = (uint32_t)first + i * (step / 16);
        for (int e = 0; e < 16 && first % (64u * step) == 0; e++)
            bits[e] = edges[(first / step / 64 * 16 + (unsigned)e) % EDGES];
        memcpy(a, bits, sizeof a);
        for (int i = 0; i < 16; i++)
            y[i] = gqn_expf(a[i]);
        for (int l = 0; l <= n && good; l++) {
            found[l]->floats[op].run(x, a, a, a);
            good = differs(x, y, true) < 0;
            if (!good)
                tell(found[l], "exp against gqn_expf", x, y, differs(x, y, true));
        }
    }
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"operations on floats", floats},
        {"operations on integers", ints},
        {"to int8", bytes},
        {"rows become columns", transposes},
        {"dot products are exact", dots_are_exact},
        {"f16 and bf16", halves},
        {"tails", tails},
        {"masks", masks},
        {"folds", folds},
        {"exp", exponentials},
    };
    const vec_probe *found[MOST];
    const int n = others(found);
    printf("levels beside scalar:");
    for (int i = 0; i < n; i++)
        printf(" %s", found[i]->level);
    printf("%s\n", n ? "" : " none on this machine");
    return unit_run("targets/vec", cases, sizeof cases / sizeof *cases, argc, argv);
}
