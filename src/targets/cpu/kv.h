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

/* kv_tail; it reads the blocks of the sequences if the rows lie only there. */
typedef struct cpu_kv_tail_record {
    int rows, past_len, state; /* values */
    int slot;                  /* slot of the kv_append that makes the rows; -1: another node
                                  makes them */
    int64_t length;
} cpu_kv_tail_record;
gqac_status cpu_kv_tail_run(target_call *call, const void *record);

/* True if rows of a slot (-1: none), whose tensor is `rows`, must be read from the blocks of
 * call->kv. */
bool cpu_kv_in_blocks(const target_call *call, int slot, const gqac_tensor *rows);

#endif
