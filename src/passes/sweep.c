/* Dead-code removal. A node lives while one of its outputs is used; an effect's token is used by
 * the next effect or by the graph's results, so effects need no rule of their own. Going backwards,
 * and into the graphs of a node before it is passed, one sweep finds everything. */
#include "passes/rewrite.h"

static bool is_dead(const ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !ir_value_unused(node->outputs[i]))
            return false;
    return true;
}

/* Recursion follows nested graphs, whose depth the verifier bounds. */
static void sweep_nodes(ir_graph *graph) {
    ir_node *prev;
    for (ir_node *node = graph->last; node; node = prev) {
        prev = node->prev;
        if (is_dead(node)) {
            ir_node_remove(node);
            continue;
        }
        ir_graph *inner;
        for (int at = 0; (inner = ir_next_graph(node, &at));)
            sweep_nodes(inner);
    }
}

static void sweep_constants(ir_graph *graph) {
    (void)ir_graph_sweep_constants(graph);
    for (ir_node *node = graph->first; node; node = node->next) {
        ir_graph *inner;
        for (int at = 0; (inner = ir_next_graph(node, &at));)
            sweep_constants(inner);
    }
}

void pass_sweep(ir_module *module) {
    sweep_nodes(module->graph);
    sweep_constants(module->graph);
}
