/* How long the values of a main graph live, once its nodes have their order and their kernels. */
#ifndef GQAC_IR_LIFE_H
#define GQAC_IR_LIFE_H

#include "ir/ir.h"

/* ir_node.mark of every node becomes its place in the order. Returns how many there are. */
int ir_life_number(ir_graph *graph);
/* The node, a root, behind which nobody reads a value that a node of a numbered graph makes; a node
 * that holds graphs reads what they take from outside, and who reads what it is seen as reads it.
 */
ir_node *ir_life_end(const ir_value *value);

#endif
