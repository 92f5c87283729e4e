/* Mixtures of experts on the cpu target: see moe.c. */
#ifndef GQAC_TARGETS_CPU_MOE_H
#define GQAC_TARGETS_CPU_MOE_H

#include "targets/cpu/cpu.h"

gqac_status cpu_run_moe(op_call *call);

#endif
