/* The levels of the cpu target that this machine can run. */
#ifndef GQAC_TEST_TARGETS_LEVELS_H
#define GQAC_TEST_TARGETS_LEVELS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "targets/cpu/level.h"

enum { MAX_LEVELS = 8 };

/* Lists the levels, plain C first, the best last; returns their number. */
static inline int find_levels(const cpu_level *levels[MAX_LEVELS]) {
    int n = 0;
    for (const cpu_level *level; n < MAX_LEVELS && (level = cpu_level_at(n)); n++)
        levels[n] = level;
    if (n < 1 || strcmp(cpu_level_name(levels[0]), "scalar") != 0 || cpu_level_at(n)) {
        fprintf(stderr, "%d levels, the first is not scalar or more are there\n", n);
        abort();
    }
    return n;
}

#endif
