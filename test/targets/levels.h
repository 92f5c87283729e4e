/* The levels of the cpu target that this machine runs. */
#ifndef GQAC_TEST_TARGETS_LEVELS_H
#define GQAC_TEST_TARGETS_LEVELS_H

#include <stdlib.h>

#include "targets/cpu/cpu.h"

enum { MAX_LEVELS = 5 };

/* Plain C first, the best last; gives how many. */
static inline int find_levels(const cpu_level *levels[MAX_LEVELS]) {
    static const char *const names[MAX_LEVELS] = {"scalar", "avx2", "avx512", "avx512vnni",
                                                  "avx512bf16"};
    int n = 0;
    for (int i = 0; i < MAX_LEVELS; i++) {
        const void *level = NULL;
        gqac_diag diag = {0};
        setenv("GQAC_CPU", names[i], 1);
        if (cpu_level_pick(&level, &diag) == GQAC_OK)
            levels[n++] = level;
    }
    unsetenv("GQAC_CPU");
    return n;
}

#endif
