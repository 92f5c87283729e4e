/* MatMul of two operands that only a run knows; those with a constant are `linear`. */
#ifndef GQAC_TARGETS_CPU_MATMUL_H
#define GQAC_TARGETS_CPU_MATMUL_H

#include "targets/cpu/cpu.h"

/* Both operands are matrices of one type of floats. */
bool cpu_matmul_match(const ir_node *node);
gqac_status cpu_run_matmul(op_call *call);

#endif
