/* For the sources of this folder, which are compiled once for each level: CPU_LEVEL is its name.
 * Symbols that they export have the level in their names: CPU_NAME(cpu_linear) is, for example,
 * cpu_linear_avx2. */
#ifndef GQAC_TARGETS_CPU_LEVEL_LEVEL_H
#define GQAC_TARGETS_CPU_LEVEL_LEVEL_H

#include "targets/cpu/cpu.h"
#include "targets/cpu/level/vec.h"

#ifndef CPU_LEVEL /* for editors, and for compiling a single file */
#define CPU_LEVEL scalar
#endif
#define CPU_JOIN_(a, b) a##_##b
#define CPU_JOIN(a, b)  CPU_JOIN_(a, b)
#define CPU_NAME(stem)  CPU_JOIN(stem, CPU_LEVEL)
#define CPU_TEXT_(x)    #x
#define CPU_TEXT(x)     CPU_TEXT_(x)

/* The cases of a switch over the number of rows of a tile: one(1) to one(6). */
#define TILE_CASES(one)                                                                            \
    one(1);                                                                                        \
    one(2);                                                                                        \
    one(3);                                                                                        \
    one(4);                                                                                        \
    one(5);                                                                                        \
    one(6)

#endif
