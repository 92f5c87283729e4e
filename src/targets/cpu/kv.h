/* Cached rows on the cpu target: attention reads them where they lie, in the blocks of the
 * sequences; keys that nobody else reads are kept as columns (kv_slot.columns). */
#ifndef GQAC_TARGETS_CPU_KV_H
#define GQAC_TARGETS_CPU_KV_H

#include "ops/shared.h"
#include "targets/target.h"

/* gqac_target.in_blocks: do only kernels that read blocks read the appended rows? */
bool cpu_kv_only_blocks(const ir_node *kv_append);
/* gqac_target.columns: do only attention kernels read the appended rows, as keys? */
bool cpu_kv_columns(const ir_node *kv_state);
/* kv_append: its rows have no data (only a shape) where nothing but such kernels reads them. */
gqac_status cpu_kv_append(op_call *call);
/* kv_tail from the blocks of the sequences. */
gqac_status cpu_kv_tail(op_call *call);
/* append.c: heads of a packed projection, normalised and turned, into blocks. */
int cpu_fuse_append(const ir_node *root, ir_node **nodes);
gqac_status cpu_run_append(op_call *call);
/* target_kernel.over: a present over its past. */
bool cpu_append_over(const ir_node *root, const ir_value *result, const ir_value *operand);
/* Must these rows, whose tensor is `rows`, be read from the blocks of call->kv? */
bool cpu_kv_in_blocks(const op_call *call, const ir_value *value, const gqac_tensor *rows);

/* attention.c, which reads blocks: inputs 1 (keys) and 2 (values). */
bool cpu_attention_match(const ir_node *node);
/* Takes the nodes that dequantise keys and values, and reads the codes. */
int cpu_attention_fuse(const ir_node *root, ir_node **nodes);
gqac_status cpu_attention_run(op_call *call);
gqac_status cpu_attend_run(op_call *call);

#endif
