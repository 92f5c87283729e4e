/* Modules, graphs and values: construction, results, uses.
 *
 * The operands of a node are ir_use records in a list of their value; linking, unlinking and
 * replacing take constant time for each use. */
#include "ir/impl.h"

#include <assert.h>
#include <string.h>

const ir_schema ir_return_schema = {
    .name = "return",
    .domain = "gqac",
    .inputs = "results*",
    .outputs = "",
    .flags = IR_OP_RETURN | IR_OP_NO_FOLD,
    .doc = "The results of the graph.",
};

ir_module *ir_module_create(gqac_arena *arena, const char *source) {
    ir_module *module = GQAC_ARENA_NEW(arena, ir_module);
    if (!module)
        return NULL;
    module->arena = arena;
    module->dims = ir_dims_create(arena);
    module->source = source ? gqac_arena_strdup(arena, source) : NULL;
    if (!module->dims || (source && !module->source) || !ir_names_create(module))
        return NULL;
    return module;
}

ir_graph *ir_graph_create(ir_module *module, const char *name) {
    ir_graph *graph = GQAC_ARENA_NEW(module->arena, ir_graph);
    if (!graph)
        return NULL;
    graph->module = module;
    graph->name = gqac_arena_strdup(module->arena, name ? name : "graph");
    if (!graph->name)
        return NULL;
    graph->ret = ir_node_create(graph, &ir_return_schema, NULL, 0, NULL, 0, NULL);
    return graph->ret ? graph : NULL;
}

/* ---- values -------------------------------------------------------------- */

ir_value *ir_value_create(ir_graph *graph, const char *wanted, ir_type type) {
    ir_name *name = ir_names_claim(graph->module, wanted);
    ir_value *value = name ? GQAC_ARENA_NEW(graph->module->arena, ir_value) : NULL;
    if (!value)
        return NULL;
    value->name = name->text;
    name->value = value;
    value->type = type;
    value->graph = graph;
    value->slot = -1;
    return value;
}

bool ir_value_rename(ir_value *value, const char *wanted) {
    ir_name *name = ir_names_claim(value->graph->module, wanted);
    if (!name)
        return false;
    value->name = name->text;
    name->value = value;
    return true;
}

bool ir_value_take_name(ir_value *value, const char *wanted) {
    ir_name *name = ir_names_find(value->graph->module, wanted, strlen(wanted));
    if (!name)
        return ir_value_rename(value, wanted);
    /* ir_name.value may be a value that no longer has the name */
    if (name->value && name->value != value && name->value->name == name->text &&
        !ir_value_rename(name->value, wanted))
        return false;
    value->name = name->text;
    name->value = value;
    return true;
}

bool ir_value_unused(const ir_value *value) {
    return !value->uses;
}

/* Grows an array for one more element; the old array stays in the arena, which at most doubles the
 * memory. */
static void *grown(gqac_arena *arena, const void *old, int n, int capacity, size_t size) {
    void *items = gqac_arena_calloc(arena, (size_t)capacity, size);
    if (items && n)
        memcpy(items, old, (size_t)n * size);
    return items;
}

ir_value *ir_graph_add_input(ir_graph *graph, const char *name, ir_type type) {
    gqac_arena *arena = graph->module->arena;
    int n = graph->n_inputs;
    if ((n & (n - 1)) == 0) { /* full: the capacity is the next power of two */
        void *inputs = grown(arena, graph->inputs, n, n ? 2 * n : 1, sizeof *graph->inputs);
        if (!inputs)
            return NULL;
        graph->inputs = inputs;
    }
    ir_value *value = ir_value_create(graph, name, type);
    if (value)
        graph->inputs[graph->n_inputs++] = value;
    return value;
}

void ir_graph_remove_input(ir_graph *graph, int index) {
    assert(index >= 0 && index < graph->n_inputs && ir_value_unused(graph->inputs[index]));
    graph->n_inputs--;
    memmove(&graph->inputs[index], &graph->inputs[index + 1],
            (size_t)(graph->n_inputs - index) * sizeof *graph->inputs);
}

bool ir_graph_push_constant(ir_graph *graph, ir_value *value) {
    if (graph->n_constants == graph->constants_capacity) {
        int capacity = graph->constants_capacity ? 2 * graph->constants_capacity : 8;
        void *items = grown(graph->module->arena, graph->constants, graph->n_constants, capacity,
                            sizeof *graph->constants);
        if (!items)
            return false;
        graph->constants = items;
        graph->constants_capacity = capacity;
    }
    graph->constants[graph->n_constants++] = value;
    return true;
}

bool ir_graph_set_results(ir_graph *graph, int n, ir_value *const *values,
                          const char *const *names) {
    gqac_arena *arena = graph->module->arena;
    const char **result_names = GQAC_ARENA_ARRAY(arena, const char *, (size_t)n);
    if (!result_names)
        return false;
    for (int i = 0; i < n; i++) {
        const char *name = names && names[i] ? names[i] : values[i]->name;
        result_names[i] = name == values[i]->name ? name : gqac_arena_strdup(arena, name);
        if (!result_names[i])
            return false;
    }
    if (!ir_node_set_inputs(graph->ret, n, values))
        return false;
    graph->result_names = result_names;
    return true;
}

/* ---- uses ---------------------------------------------------------------- */

void ir_use_link(ir_use *use, ir_value *value) {
    use->value = value;
    use->prev = NULL;
    use->next = NULL;
    if (!value)
        return;
    use->next = value->uses;
    if (value->uses)
        value->uses->prev = use;
    value->uses = use;
}

void ir_use_unlink(ir_use *use) {
    if (!use->value)
        return;
    if (use->prev)
        use->prev->next = use->next;
    else
        use->value->uses = use->next;
    if (use->next)
        use->next->prev = use->prev;
    use->value = NULL;
    use->prev = use->next = NULL;
}

void ir_node_set_input(ir_node *node, int index, ir_value *value) {
    assert(index >= 0 && index < node->n_inputs);
    ir_use_unlink(&node->inputs[index]);
    ir_use_link(&node->inputs[index], value);
}

bool ir_node_set_inputs(ir_node *node, int n, ir_value *const *values) {
    ir_use *inputs = GQAC_ARENA_ARRAY(node->graph->module->arena, ir_use, (size_t)n);
    if (!inputs)
        return false;
    for (int i = 0; i < n; i++) {
        inputs[i].node = node;
        ir_use_link(&inputs[i], values[i]);
    }
    for (int i = 0; i < node->n_inputs; i++)
        ir_use_unlink(&node->inputs[i]);
    node->inputs = inputs;
    node->n_inputs = n;
    return true;
}

void ir_value_replace(ir_value *old, ir_value *by) {
    if (!by->origin)
        by->origin = old->origin;
    if (old == by || !old->uses)
        return;
    ir_use *last = old->uses;
    for (;; last = last->next) {
        last->value = by;
        if (!last->next)
            break;
    }
    last->next = by->uses;
    if (by->uses)
        by->uses->prev = last;
    by->uses = old->uses;
    old->uses = NULL;
}
