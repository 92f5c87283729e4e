/* What norms of heads, rotary and appends share. */
#ifndef GQAC_TARGETS_CPU_HEADS_H
#define GQAC_TARGETS_CPU_HEADS_H

#include "targets/cpu/graph.h"
#include "targets/cpu/rows.h"

/* rotary, alone or with the norm and the split_heads or reshapes before it. */
int cpu_fuse_heads(const ir_node *root, ir_node **nodes);
bool cpu_match_heads(const ir_node *node);
gqac_status cpu_run_heads(op_call *call);
/* Sets what the head has of its norm, by the type of x and the size. */
gqac_status cpu_open_head_norm(op_call *call, const ir_node *node, const norm *kind, cpu_head *p);

/* append.c: the packed value [B,S,W] that attention reads these queries in, from `column` on,
 * because nothing is done to them on the way; NULL: they have memory of their own. */
const ir_value *cpu_packed_queries(const ir_value *queries, int64_t *column);
const ir_value *cpu_lies_in(const ir_value *value);

#endif
