/* The list of levels, for tests and tools that compare them. */
#ifndef GQAC_TARGETS_CPU_LEVEL_H
#define GQAC_TARGETS_CPU_LEVEL_H

#include "targets/cpu/cpu.h"

/* The levels that this machine can run: plain C is 0, the best one is last, followed by NULL. */
const cpu_level *cpu_level_at(int index);

#endif
