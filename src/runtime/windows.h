/* Which cached rows attention with a sliding window can still read. */
#ifndef GQAC_RUNTIME_WINDOWS_H
#define GQAC_RUNTIME_WINDOWS_H

#include "ir/ir.h"

/* The kv_slot.window for a kv_state: the largest window of the nodes that read its rows; 0: some
 * node reads all of them. */
int64_t windows_find(const ir_node *kv_state);

#endif
