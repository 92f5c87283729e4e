/* infer: computes the types of all values, and the symbolic elements of small integer tensors, from
 * the inputs on. The infer of a node with nested graphs runs before them, because it may type their
 * inputs, and again after each of them, because it uses the types of their results. Idempotent:
 * what is known is never lost. */
#include "passes/rewrite.h"

static gqac_status forget(void *arg, ir_node *node) {
    (void)arg;
    for (int i = 0; i < node->n_outputs; i++) {
        ir_value *value = node->outputs[i];
        if (!value)
            continue;
        value->type = ir_type_unknown();
        value->elements = NULL;
        value->n_elements = 0;
    }
    return GQAC_OK;
}

/* True if the node is in a branch of an If, which may never run. */
static bool may_not_run(const ir_node *node) {
    for (const ir_node *holder = node->graph->parent; holder; holder = holder->graph->parent)
        if (op_is(holder, "", "If"))
            return true;
    return false;
}

/* In a branch that may never run, an invalid node gets unknown types and fails only if it runs. */
static gqac_status infer(ir_node *node, gqac_diag *diag) {
    if (!may_not_run(node))
        return op_infer(node, diag);
    gqac_diag own = {.index = -1};
    const gqac_status status = op_infer(node, &own);
    if (status == GQAC_INVALID_MODEL)
        return forget(NULL, node);
    if (status != GQAC_OK && diag)
        *diag = own;
    return status;
}

static gqac_status visit(void *arg, ir_node *node) {
    gqac_diag *diag = arg;
    if (!(node->op->flags & IR_OP_RETURN))
        return infer(node, diag);
    ir_node *holder = node->graph->parent;
    return holder ? infer(holder, diag) : GQAC_OK;
}

gqac_status pass_infer_node(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(infer(node, diag));
    ir_graph *graph;
    for (int at = 0; (graph = ir_next_graph(node, &at));)
        GQAC_TRY(ir_graph_walk_all(graph, visit, diag));
    return GQAC_OK;
}

gqac_status pass_infer_again(ir_graph *graph, gqac_diag *diag) {
    (void)ir_graph_walk(graph, forget, NULL);
    return ir_graph_walk_all(graph, visit, diag);
}

static gqac_status run(pass_context *context) {
    return ir_graph_walk_all(context->module->graph, visit, context->diag);
}

const gqac_pass pass_infer = {
    .name = "infer",
    .summary = "types and symbolic dims of all values (part of tidy)",
    .provides = PASS_TYPED,
    .run = run,
};
