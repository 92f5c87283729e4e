/* Heads on the cpu target: the heads of one call, and the kernels that compute them. */
#ifndef GQAC_TARGETS_CPU_HEADS_H
#define GQAC_TARGETS_CPU_HEADS_H

#include "targets/cpu/rows.h"
#include "targets/heads.h"

typedef struct cpu_heads_run {
    target_heads_run at;
    cpu_head p; /* p.type is the type of the results */
    const struct cpu_row_kernels *kernels;
} cpu_heads_run;

gqac_status cpu_heads_open(const target_call *call, const target_heads *of, cpu_heads_run *r);
/* Computes rows [from, to) of a head of batch row b; y: the first of these rows. */
void cpu_heads_make(const cpu_heads_run *r, int64_t b, int64_t head, int64_t from, int64_t to,
                    unsigned char *y);

/* The record of the kernel of a rotary embedding, alone or with the nodes before it: y
 * [B,H,S,D]. */
typedef struct cpu_heads_record {
    target_heads heads;
    int y;
} cpu_heads_record;
gqac_status cpu_heads_kernel(target_call *call, const void *record);

/* The kernel; its record is a target_streams (append.c). */
gqac_status cpu_append_run(target_call *call, const void *record);
gqac_status cpu_append_scratch(const target_call *call, int threads, const void *record,
                               gqac_parts *parts);

#endif
