/* Lives of values: from the node whose kernel makes one to the last whose kernel reads it. */
#include "ir/life.h"

int ir_life_number(ir_graph *graph) {
    int n = 0;
    for (ir_node *node = graph->first; node; node = node->next)
        node->mark = (unsigned)n++;
    return n;
}

ir_node *ir_life_end(const ir_value *value) {
    ir_node *last = ir_node_root(value->def);
    for (const ir_value *v = value; v; v = v->alias)
        for (const ir_use *use = v->uses; use; use = use->next) {
            if (use->node == value->graph->ret)
                continue;
            ir_node *user = ir_node_root(ir_node_within(use->node, value->graph));
            if (user->mark > last->mark)
                last = user;
        }
    return last;
}
