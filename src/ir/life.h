/* How long the values of a main graph live, once its nodes have their order and their kernels. */
#ifndef GQAC_IR_LIFE_H
#define GQAC_IR_LIFE_H

#include "ir/ir.h"

/* Sets ir_node.mark of every node to its position in the order, and returns their number. */
int ir_life_number(ir_graph *graph);
/* The last root, in the order of ir_life_number, that reads the result of a node. A node that holds
 * graphs reads what they read from outside; a reader of a view of the value reads the value. */
ir_node *ir_life_end(const ir_value *value);

#endif
