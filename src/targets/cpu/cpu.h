/* The cpu target: declarations for all of its files.
 *
 * The arithmetic is in level/: each file there is one source that is compiled once for each
 * instruction set (level), on the 16-lane vectors of level/vec.h. The scalar level is the numerics
 * contract in plain C; the others compute the same bits. A program chooses its level when it is
 * opened (GQAC_CPU forces one) and passes it to every kernel as target_call.state. The other files
 * of this folder check operands and divide work into items; they never compute an element
 * themselves. They do not use the graph: what the kernels match, fuse and bind is declared in
 * graph.h. */
#ifndef GQAC_TARGETS_CPU_CPU_H
#define GQAC_TARGETS_CPU_CPU_H

#include "targets/call.h"

/* One set of kernels for each family; the structs are in <family>.h, their values in
 * level/<family>.c. */
typedef struct cpu_level {
    const char *name; /* "scalar", "avx2", "avx512", "avx512vnni", "avx512bf16" */
    const struct cpu_linear_kernels *linear, *linear_bf16;
    const struct cpu_nbits_kernels *nbits;
    const struct cpu_integer_kernels *integer;
    const struct cpu_attend_kernels *attend;
    const struct cpu_row_kernels *row;
    bool (*pairs_hold)(void); /* true if this machine multiplies pairs as level/pairs.h defines */
} cpu_level;

/* Sets *level to the best level of this machine, or to the one that GQAC_CPU names. USAGE: an
 * unknown name; ABSENT: the machine lacks its instructions. */
gqac_status cpu_level_pick(const void **level, gqac_diag *diag);
const char *cpu_level_name(const void *level);

static inline const cpu_level *cpu_level_of(const target_call *call) {
    return call->state;
}

#endif
