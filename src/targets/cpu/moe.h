/* Mixture of experts on the cpu target; see moe.c. */
#ifndef GQAC_TARGETS_CPU_MOE_H
#define GQAC_TARGETS_CPU_MOE_H

#include "ops/mixture.h"
#include "targets/cpu/cpu.h"

typedef struct cpu_moe_record {
    moe_form form;
    int in[MOE_INPUTS], y; /* values; -1: absent */
} cpu_moe_record;
gqac_status cpu_moe_run(target_call *call, const void *record);
gqac_status cpu_moe_scratch(const target_call *call, int threads, const void *record,
                            gqac_parts *parts);

#endif
