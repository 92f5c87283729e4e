/* Rows that are read together. Raised, a query that sees no key gets zeros, where a tracer's
 * softmax gives it the mean of all values. That shows in no other row, unless something behind
 * takes the rows of a call together: the scale of DynamicQuantizeLinear is that of its whole
 * tensor. */
#include "passes/raise.h"

enum { REACHED = 1 }; /* ir_node.mark */

typedef struct search {
    const ir_node *from, *found;
} search;

static void reach(search *s, ir_node *node) {
    node->mark = REACHED;
    if (!s->found && node->op->rows == IR_ROWS_MIXES)
        s->found = node;
}

/* In the order of the graph, a node with a nested graph before what is in that. */
static gqac_status visit(void *arg, ir_node *node) {
    search *s = arg;
    bool any = node == s->from;
    node->mark = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *value = node->inputs[i].value;
        any = any || (value && value->def && value->def->mark == REACHED);
    }
    if (any && node->op->flags & IR_OP_RETURN)
        node = node->graph->parent;
    if (any && node)
        reach(s, node);
    return GQAC_OK;
}

const ir_node *raise_find_mixing(const raise *r, const ir_node *from) {
    search s = {.from = from};
    (void)ir_graph_walk_all(r->context->module->graph, visit, &s);
    return s.found;
}
