/* What ops that carry a state from call to call share. */
#ifndef GQAC_OPS_RECURRENT_H
#define GQAC_OPS_RECURRENT_H

#include "ir/ir.h"

/* Can a call continue another? Only if input `past` is an input of the main graph and output
 * `present` a result of it: then the caller of the graph carries the state (a sequence does not:
 * the pass `stateful` refuses such a pair). With a constant or computed past every call starts
 * again. */
bool op_carries_state(const ir_node *node, int past, int present);

#endif
