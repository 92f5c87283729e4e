/* Finds out whether a model is split-safe. Each op's row says how its output rows depend on input
 * rows; a node that mixes the rows of one call makes results depend on how tokens are split into
 * calls.
 *
 * A node counts only if it depends on something that is not constant and a result depends on it as
 * data. The integer operands of a node that reaches other rows through KV state are lengths, which
 * a sequence knows by itself, so nodes that compute them (sums of the attention mask) are not
 * data. */
#include "ops/shared.h"
#include "passes/rewrite.h"

enum { VARIES = 1, SHOWS = 2 }; /* ir_node.mark */

static bool varies(const ir_value *value) {
    if (!value || value->constant)
        return false;
    return !value->def || value->def->mark & VARIES;
}

static gqac_status mark_varying(void *arg, ir_node *node) {
    bool any = false;
    (void)arg;
    for (int i = 0; i < node->n_inputs; i++)
        any = any || varies(node->inputs[i].value);
    if (!(node->op->flags & IR_OP_RETURN))
        node->mark = any || node->op->flags & IR_OP_EFFECT ? VARIES : 0;
    else if (any && node->graph->parent)
        node->graph->parent->mark |= VARIES;
    return GQAC_OK;
}

static void show_operands(const ir_node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *value = node->inputs[i].value;
        const bool length =
            value && node->op->rows == IR_ROWS_STATE && OP_IN(OP_INTS, value->type.dtype);
        if (value && value->def && !length)
            value->def->mark |= SHOWS;
    }
}

/* Marks backwards from the results. Recursion follows nested graphs, whose depth the verifier
 * limits. */
static void mark_showing(const ir_graph *graph) {
    show_operands(graph->ret);
    for (const ir_node *node = graph->last; node; node = node->prev) {
        if (!(node->mark & SHOWS))
            continue;
        show_operands(node);
        ir_graph *inner;
        for (int at = 0; (inner = ir_next_graph(node, &at));)
            mark_showing(inner);
    }
}

bool pass_mixes_rows(const ir_node *node) {
    if (node->op->rows == IR_ROWS_MIXES)
        return true;
    const bool asks = node->op->rows == IR_ROWS_SHAPE || node->op->rows == IR_ROWS_STATE;
    return asks && op_of(node)->mixes && op_of(node)->mixes(node);
}

typedef struct list {
    const ir_node **nodes; /* NULL: only counts */
    int n;
} list;

static gqac_status collect(void *arg, ir_node *node) {
    list *l = arg;
    if (node->mark != (VARIES | SHOWS) || !pass_mixes_rows(node))
        return GQAC_OK;
    if (l->nodes)
        l->nodes[l->n] = node;
    l->n++;
    return GQAC_OK;
}

gqac_status pass_check_invariance(const ir_module *module, gqac_arena *arena,
                                  const ir_node ***mixing, int *n) {
    list l = {0};
    (void)ir_graph_walk_all(module->graph, mark_varying, NULL);
    mark_showing(module->graph);
    (void)ir_graph_walk(module->graph, collect, &l);
    *mixing = GQAC_ARENA_ARRAY(arena, const ir_node *, (size_t)l.n + 1);
    if (!*mixing)
        return GQAC_NO_MEMORY;
    l = (list){.nodes = *mixing};
    (void)ir_graph_walk(module->graph, collect, &l);
    *n = l.n;
    return GQAC_OK;
}
