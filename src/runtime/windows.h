/* Which cached rows attention with a sliding window can still read. */
#ifndef GQAC_RUNTIME_WINDOWS_H
#define GQAC_RUNTIME_WINDOWS_H

#include "ir/ir.h"

/* kv_slot.window of a kv_state: the largest window of what reads its rows; 0: something reads all
 * of them. */
int64_t windows_find(const ir_node *kv_state);

#endif
