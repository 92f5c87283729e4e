/* MatMul of two operands that are known only at run time; with a constant operand it becomes
 * `linear`. */
#ifndef GQAC_TARGETS_CPU_MATMUL_H
#define GQAC_TARGETS_CPU_MATMUL_H

#include "targets/cpu/cpu.h"

typedef struct cpu_matmul_record {
    int a, b, y; /* values */
} cpu_matmul_record;
gqac_status cpu_matmul_run(target_call *call, const void *record);
gqac_status cpu_matmul_scratch(const target_call *call, int threads, const void *record,
                               gqac_parts *parts);

#endif
