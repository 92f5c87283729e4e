/* Shared by ops that carry a state from call to call. */
#ifndef GQAC_OPS_RECURRENT_H
#define GQAC_OPS_RECURRENT_H

#include "ir/ir.h"

/* True if a call can continue another: input `past` is an input of the main graph and output
 * `present` a result of it, so the caller of the graph carries the state. (A sequence does not
 * carry it; the pass `stateful` refuses such a pair.) With a constant or computed past, every call
 * starts afresh. */
bool op_carries_state(const ir_node *node, int past, int present);

#endif
