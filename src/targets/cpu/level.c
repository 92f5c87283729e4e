/* The choice of the level: the best one of this machine, or the one that GQAC_CPU names. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "targets/cpu/level.h"

extern const cpu_level cpu_level_scalar;
extern const cpu_level cpu_level_avx2, cpu_level_avx512, cpu_level_avx512vnni, cpu_level_avx512bf16;

/* The address of a level, or NULL if this build leaves it out (GQAC_BUILD_LEVELS of cmake). */
#if defined(__x86_64__) && !defined(GQAC_ONLY_SCALAR)
#define AVX2(level) &cpu_level_##level
#else
#define AVX2(level) NULL
#endif
#ifdef GQAC_NO_AVX512
#define AVX512(level) NULL
#else
#define AVX512(level) AVX2(level)
#endif

static bool has_scalar(void) {
    return true;
}

#ifdef __x86_64__
/* clang 14 has no name for this feature. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
static bool has_avx512vnni(void) {
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}
/* False also if the instruction does not compute the contract's product of pairs; then the level
 * before this one is used. */
static bool has_avx512bf16(void) {
    const cpu_level *level = AVX512(avx512bf16);
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16") && level && level->pairs_hold();
}
#endif

/* From plain C to the best. */
static const struct {
    const char *name;
    const cpu_level *level;
    bool (*has)(void);
} levels[] = {
    {"scalar", &cpu_level_scalar, has_scalar},
#ifdef __x86_64__
    {"avx2", AVX2(avx2), has_avx2},
    {"avx512", AVX512(avx512), has_avx512},
    {"avx512vnni", AVX512(avx512vnni), has_avx512vnni},
    {"avx512bf16", AVX512(avx512bf16), has_avx512bf16},
#endif
};
enum { N_LEVELS = (int)(sizeof levels / sizeof *levels) };

static bool runs(int i) {
    return levels[i].level && levels[i].has();
}

static gqac_status refuse(gqac_status status, const char *what, const char *name, bool runnable,
                          gqac_diag *diag) {
    char text[128] = "";
    size_t n = 0;
    for (int i = 0; i < N_LEVELS && n < sizeof text; i++)
        if (!runnable || runs(i))
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", levels[i].name);
    gqac_diag_set(diag, status, what, name);
    gqac_diag_rule(diag, runnable ? "this machine can run %s" : "levels: %s", text);
    gqac_diag_hint(diag, "unset GQAC_CPU to use the best level of the machine");
    return status;
}

gqac_status cpu_level_pick(const void **level, gqac_diag *diag) {
    const char *name = getenv("GQAC_CPU");
    for (int i = N_LEVELS - 1; i >= 0; i--) {
        if (name && *name && strcmp(name, levels[i].name) != 0)
            continue;
        if (runs(i)) {
            *level = levels[i].level;
            return GQAC_OK;
        }
        if (name && *name)
            return refuse(GQAC_ABSENT,
                          levels[i].level ? "GQAC_CPU=%s: this machine lacks its instructions"
                                          : "GQAC_CPU=%s: this build leaves the level out",
                          name, true, diag);
    }
    return refuse(GQAC_USAGE, "GQAC_CPU=%s: there is no such level", name, false, diag);
}

const cpu_level *cpu_level_at(int index) {
    for (int i = 0; i < N_LEVELS; i++)
        if (runs(i) && index-- == 0)
            return levels[i].level;
    return NULL;
}

const char *cpu_level_name(const void *level) {
    return ((const cpu_level *)level)->name;
}

bool cpu_large_first_level(void) {
    static atomic_long bytes; /* 0: not yet read, -1: unknown */
    long known = atomic_load_explicit(&bytes, memory_order_relaxed);
    if (!known) {
        known = sysconf(_SC_LEVEL1_DCACHE_SIZE);
        if (known <= 0)
            known = -1;
        atomic_store_explicit(&bytes, known, memory_order_relaxed);
    }
    return known >= 48 << 10;
}
