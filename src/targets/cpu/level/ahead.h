/* Prefetches memory at an even pace while a kernel computes on earlier data: reads in bursts would
 * wait for each other, and the kernel for them. The memory may be after the end of the weights,
 * because a prefetch never faults. */
#ifndef GQAC_TARGETS_CPU_LEVEL_AHEAD_H
#define GQAC_TARGETS_CPU_LEVEL_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "targets/cpu/level.h"
#include "targets/cpu/level/vec.h"

enum { LINE = 64 };

/* Prefetches `lines` cache lines from `at` on, in `steps` steps. */
typedef struct ahead {
    uintptr_t at;
    int64_t lines, steps, due;
    bool first_level; /* prefetches to the first-level cache instead of the second */
} ahead;

static inline ahead ahead_of(const void *from, int64_t bytes) {
    return (ahead){.at = (uintptr_t)from,
                   .lines = bytes / LINE,
                   .steps = 1,
                   .first_level = cpu_large_first_level()};
}

/* Sets *part to part `i` of `n` of the lines, to be prefetched in `steps` steps. It is not returned
 * by value, because copying a struct that was just written waits until its fields are in the
 * cache. */
static inline void ahead_open_part(ahead *part, const ahead *all, int64_t i, int64_t n,
                                   int64_t steps) {
    part->at = all->at + (i ? (uintptr_t)(all->lines * i / n * LINE) : 0);
    part->lines = all->lines;
    part->steps = n * steps;
    part->due = 0;
    part->first_level = all->first_level;
}

static inline ahead ahead_part(ahead a, int64_t i, int64_t n, int64_t steps) {
    ahead part;
    ahead_open_part(&part, &a, i, n, steps);
    return part;
}

VEC_FN void ahead_step(ahead *a) {
    for (a->due += a->lines; a->due >= a->steps; a->due -= a->steps, a->at += LINE)
        if (a->first_level)
            __builtin_prefetch((const void *)a->at, 0, 3);
        else
            __builtin_prefetch((const void *)a->at, 0, 2);
}

#endif
