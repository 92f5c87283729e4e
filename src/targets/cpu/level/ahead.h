/* Memory that is asked for while a kernel computes on what came before, at an even pace: reads that
 * come in bursts wait for each other, and the kernel for them. It may lie behind the weights. */
#ifndef GQAC_TARGETS_CPU_LEVEL_AHEAD_H
#define GQAC_TARGETS_CPU_LEVEL_AHEAD_H

#include <stdint.h>

#include "targets/cpu/level/vec.h"

enum { LINE = 64 };

/* `lines` lines from `at` in `steps` steps. */
typedef struct ahead {
    uintptr_t at;
    int64_t lines, steps, due;
} ahead;

static inline ahead ahead_of(const void *from, int64_t bytes) {
    return (ahead){.at = (uintptr_t)from, .lines = bytes / LINE, .steps = 1};
}

/* Part `i` of `n`, in so many steps. */
static inline ahead ahead_part(ahead a, int64_t i, int64_t n, int64_t steps) {
    a.at += (uintptr_t)(a.lines * i / n * LINE);
    a.steps = n * steps;
    return a;
}

/* Into the second cache: it has room for what is read now and what is read next. */
VEC_FN void ahead_step(ahead *a) {
    for (a->due += a->lines; a->due >= a->steps; a->due -= a->steps, a->at += LINE)
        __builtin_prefetch((const void *)a->at, 0, 2);
}

#endif
