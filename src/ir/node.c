/* Nodes: construction, insertion, removal; and the walk over nested graphs.
 *
 * Removing a node also removes the nodes of its nested graphs, with their uses of outer values. */
#include "ir/impl.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static int n_attrs(const ir_schema *op) {
    int n = 0;
    for (const ir_attr_spec *spec = op->attrs; spec && spec->name; spec++)
        n++;
    return n;
}

static bool make_output(ir_node *node, int index, const char *name) {
    ir_value *value = ir_value_create(node->graph, name, ir_type_unknown());
    if (!value)
        return false;
    value->def = node;
    value->result = index;
    node->outputs[index] = value;
    return true;
}

static bool make_outputs(ir_node *node, const char *const *names) {
    for (int i = 0; i < node->n_outputs; i++) {
        const char *name = names ? names[i] : NULL;
        if (name && !*name)
            continue;
        if (!name)
            name = node->name && *node->name ? node->name : node->op->name;
        if (!make_output(node, i, name))
            return false;
    }
    return true;
}

bool ir_node_complete(ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        if (!node->outputs[i] && ir_schema_kind(node->op->outputs, i) == IR_REQUIRED &&
            !make_output(node, i, node->op->name))
            return false;
    return true;
}

ir_node *ir_node_create(ir_graph *graph, const ir_schema *op, const char *name, int n_inputs,
                        ir_value *const *inputs, int n_outputs, const char *const *out_names) {
    gqac_arena *arena = graph->module->arena;
    ir_node *node = GQAC_ARENA_NEW(arena, ir_node);
    int attrs = n_attrs(op);
    if (!node)
        return NULL;
    node->op = op;
    node->graph = graph;
    node->n_inputs = n_inputs;
    node->n_outputs = n_outputs;
    node->name = name ? gqac_arena_strdup(arena, name) : NULL;
    node->inputs = GQAC_ARENA_ARRAY(arena, ir_use, (size_t)n_inputs);
    node->outputs = GQAC_ARENA_ARRAY(arena, ir_value *, (size_t)n_outputs);
    node->attrs = GQAC_ARENA_ARRAY(arena, ir_attr, (size_t)attrs);
    if ((name && !node->name) || !node->inputs || !node->outputs || !node->attrs ||
        !make_outputs(node, out_names))
        return NULL;
    for (int i = 0; i < attrs; i++)
        node->attrs[i] = op->attrs[i].fallback;
    for (int i = 0; i < n_inputs; i++) {
        node->inputs[i].node = node;
        ir_use_link(&node->inputs[i], inputs[i]);
    }
    return node;
}

bool ir_node_linked(const ir_node *node) {
    return node->prev || node->graph->first == node || node->graph->ret == node;
}

void ir_node_insert(ir_node *node, ir_node *before) {
    ir_graph *graph = node->graph;
    assert(!ir_node_linked(node) && (!before || before->graph == graph));
    node->next = before;
    node->prev = before ? before->prev : graph->last;
    if (node->prev)
        node->prev->next = node;
    else
        graph->first = node;
    if (before)
        before->prev = node;
    else
        graph->last = node;
}

static void unlink_node(ir_node *node) {
    ir_graph *graph = node->graph;
    if (!ir_node_linked(node) || graph->ret == node)
        return;
    if (node->prev)
        node->prev->next = node->next;
    else
        graph->first = node->next;
    if (node->next)
        node->next->prev = node->prev;
    else
        graph->last = node->prev;
    node->prev = node->next = NULL;
}

void ir_node_move(ir_node *node, ir_graph *graph, ir_node *before) {
    assert(node->graph->module == graph->module && node != before);
    unlink_node(node);
    node->graph = graph;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            node->outputs[i]->graph = graph;
    ir_node_insert(node, before);
}

static void drop_uses(ir_node *node) {
    for (int i = 0; i < node->n_inputs; i++)
        ir_use_unlink(&node->inputs[i]);
}

static gqac_status drop_visited(void *arg, ir_node *node) {
    (void)arg;
    drop_uses(node);
    return GQAC_OK;
}

/* ---- nested graphs ------------------------------------------------------- */

ir_graph *ir_next_graph(const ir_node *node, int *at) {
    const ir_attr_spec *specs = node->op->attrs;
    for (; specs && specs[*at].name; ++*at)
        if (specs[*at].kind == IR_ATTR_GRAPH && node->attrs[*at].graph)
            return node->attrs[(*at)++].graph;
    return NULL;
}

bool ir_holds_graphs(const ir_node *node) {
    int at = 0;
    return ir_next_graph(node, &at) != NULL;
}

void ir_node_remove(ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        assert(!node->outputs[i] || ir_value_unused(node->outputs[i]));
    unlink_node(node);
    drop_uses(node);
    ir_graph *inner;
    for (int at = 0; (inner = ir_next_graph(node, &at));)
        (void)ir_graph_walk_all(inner, drop_visited, NULL);
}

/* The nested graph of the node that follows `graph`, which is one of them; NULL: it is the last. */
static ir_graph *graph_after(const ir_node *node, const ir_graph *graph) {
    const ir_graph *inner;
    int at = 0;
    while ((inner = ir_next_graph(node, &at)) && inner != graph)
        ;
    return inner ? ir_next_graph(node, &at) : NULL;
}

/* Iterative, because the model determines the depth of nested graphs. `ends`: return nodes are
 * visited too. */
static gqac_status walk(ir_graph *graph, ir_node_visitor *f, void *arg, bool ends) {
    ir_graph *at = graph;
    ir_node *node = at->first;
    for (;;) {
        while (!node) { /* the graph is done: go on after the node that holds it */
            if (ends)
                GQAC_TRY(f(arg, at->ret));
            if (at == graph)
                return GQAC_OK;
            ir_node *holder = at->parent;
            ir_graph *sibling = graph_after(holder, at);
            at = sibling ? sibling : holder->graph;
            node = sibling ? sibling->first : holder->next;
        }
        ir_node *next = node->next;
        GQAC_TRY(f(arg, node));
        int first = 0;
        ir_graph *inner = ir_node_linked(node) ? ir_next_graph(node, &first) : NULL;
        if (inner) {
            at = inner;
            node = inner->first;
        } else {
            node = next;
        }
    }
}

gqac_status ir_graph_walk(ir_graph *graph, ir_node_visitor *f, void *arg) {
    return walk(graph, f, arg, false);
}

gqac_status ir_graph_walk_all(ir_graph *graph, ir_node_visitor *f, void *arg) {
    return walk(graph, f, arg, true);
}

/* ---- messages ------------------------------------------------------------ */

const char *ir_node_op_name(const ir_node *node, char *buffer, size_t size) {
    const char *domain = strcmp(node->op->domain, "gqac") ? node->op->domain : "";
    snprintf(buffer, size, "%s%s%s", domain, *domain ? "." : "", node->op->name);
    return buffer;
}

const char *ir_node_label(const ir_node *node) {
    if (node->name && *node->name)
        return node->name;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            return node->outputs[i]->name;
    return "";
}

void ir_node_where(const ir_node *node, gqac_diag *diag) {
    char op[128];
    gqac_diag_where(diag, "node '%s' (%s)", ir_node_label(node),
                    ir_node_op_name(node, op, sizeof op));
}

/* ---- groups -------------------------------------------------------------- */

ir_node *ir_node_root(const ir_node *node) {
    return node->fused_into ? node->fused_into : (ir_node *)node;
}

ir_node *ir_node_within(const ir_node *node, const ir_graph *graph) {
    while (node->graph != graph)
        node = node->graph->parent;
    return (ir_node *)node;
}

bool ir_value_escapes(const ir_value *value) {
    if (!value->def)
        return value->uses != NULL;
    const ir_node *root = ir_node_root(value->def);
    for (const ir_use *use = value->uses; use; use = use->next)
        if (ir_node_root(ir_node_within(use->node, value->graph)) != root)
            return true;
    return false;
}
