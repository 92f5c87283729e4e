/* What the kernels of a level know of the machine, and the list of levels for tests and tools that
 * compare them. */
#ifndef GQAC_TARGETS_CPU_LEVEL_H
#define GQAC_TARGETS_CPU_LEVEL_H

#include "targets/cpu/cpu.h"

/* The levels that this machine can run: plain C is 0, the best one is last, followed by NULL. */
const cpu_level *cpu_level_at(int index);

/* Whether weights are prefetched to the first-level cache. Measured in decode steps of 2 and 4
 * sequences with int4 weights: with 48 KiB (Zen 5) this is up to 1.12 times as fast as prefetching
 * to the second-level cache; with 32 KiB (Zen 4) it is up to 1.17 times as slow, because lines are
 * evicted before they are read. */
bool cpu_large_first_level(void);

#endif
