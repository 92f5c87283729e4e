/* The lives of values of the main graph, after its nodes have their order and their kernels. */
#ifndef GQAC_IR_LIFE_H
#define GQAC_IR_LIFE_H

#include "ir/ir.h"

/* Sets ir_node.mark of every node to its position in the order, and returns their number. */
int ir_life_number(ir_graph *graph);
/* The last root, in the order of ir_life_number, that reads a value. A node with nested graphs also
 * reads the outer values that these read. A root that reads another value stored in this value's
 * memory counts as a reader of this value. */
ir_node *ir_life_end(const ir_value *value);

#endif
