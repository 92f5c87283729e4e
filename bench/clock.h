/* The clock of the C programs of this folder. */
#ifndef GQAC_BENCH_CLOCK_H
#define GQAC_BENCH_CLOCK_H

#include <time.h>

static inline double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

#endif
