/* The levels, one by one, for whoever compares them. */
#ifndef GQAC_TARGETS_CPU_LEVEL_H
#define GQAC_TARGETS_CPU_LEVEL_H

#include "targets/cpu/cpu.h"

/* Those that this machine runs: plain C is 0, the best is last; NULL behind it. */
const cpu_level *cpu_level_at(int index);

#endif
