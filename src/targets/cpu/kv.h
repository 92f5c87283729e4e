/* Cached rows on the cpu target: attention reads them where they lie, in the blocks of the
 * sequences; keys that nobody else reads are kept as columns (kv_slot.columns). */
#ifndef GQAC_TARGETS_CPU_KV_H
#define GQAC_TARGETS_CPU_KV_H

#include "targets/cpu/cpu.h"

/* kv_append: its rows have no data (only a shape) where nothing but kernels that read blocks reads
 * them. */
typedef struct cpu_kv_append_record {
    int slot, fresh, token, rows; /* fresh: operand `new`; token and rows: results */
    bool only_blocks;
} cpu_kv_append_record;
gqac_status cpu_kv_append_run(target_call *call, const void *record);

/* kv_tail, from the blocks of the sequences where the rows lie there alone. */
typedef struct cpu_kv_tail_record {
    int rows, past_len, state; /* values */
    int slot;                  /* that of the rows when a kv_append makes them, else -1 */
    int64_t length;
} cpu_kv_tail_record;
gqac_status cpu_kv_tail_run(target_call *call, const void *record);

/* Must rows of a slot (-1: of none), whose tensor is `rows`, be read from the blocks of call->kv?
 */
bool cpu_kv_in_blocks(const target_call *call, int slot, const gqac_tensor *rows);

#endif
