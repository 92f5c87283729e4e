/* See recurrent.h. */
#include "ops/recurrent.h"

bool op_carries_state(const ir_node *node, int past, int present) {
    const ir_value *from = ir_node_input(node, past), *to = ir_node_output(node, present);
    if (!from || from->def || from->constant || from->graph->parent)
        return false;
    for (const ir_use *use = to ? to->uses : NULL; use; use = use->next)
        if (use->node == from->graph->ret)
            return true;
    return false;
}
