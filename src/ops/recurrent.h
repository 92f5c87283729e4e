/* What ops that carry a state from call to call share. */
#ifndef GQAC_OPS_RECURRENT_H
#define GQAC_OPS_RECURRENT_H

#include "ir/ir.h"

/* Can one call go on where another ended? Only when input `past` is an input of the main graph and
 * output `present` a result of it: then a caller of the graph carries the state (no sequence does:
 * the pass `stateful` refuses such a pair). A past that is constant or computed begins anew. */
bool op_carries_state(const ir_node *node, int past, int present);

#endif
