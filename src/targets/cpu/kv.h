/* Cached rows on the cpu target: attention reads them in place, in the blocks of the sequences;
 * keys that only attention reads are kept as columns (kv_slot.columns). */
#ifndef GQAC_TARGETS_CPU_KV_H
#define GQAC_TARGETS_CPU_KV_H

#include "targets/cpu/cpu.h"

/* kv_append. Its result has a shape but no data if all its readers read blocks. */
typedef struct cpu_kv_append_record {
    int slot, fresh, token, rows; /* fresh: operand `new`; token and rows: results */
    bool only_blocks;
} cpu_kv_append_record;
gqac_status cpu_kv_append_run(target_call *call, const void *record);

/* kv_tail; it reads the blocks of the sequences if the rows are only there. */
typedef struct cpu_kv_tail_record {
    int rows, past_len, state; /* values */
    int slot;                  /* as cpu_bind_slot */
    int64_t length;
} cpu_kv_tail_record;
gqac_status cpu_kv_tail_run(target_call *call, const void *record);
gqac_status cpu_kv_tail_scratch(const target_call *call, int threads, const void *record,
                                gqac_parts *parts);

#endif
