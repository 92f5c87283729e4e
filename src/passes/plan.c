/* plan: which values of the main graph share a buffer. A value holds its buffer from the node whose
 * kernel makes it to its last user; a node that holds graphs uses what they take from outside. The
 * outputs of a kernel never share with its inputs, so kernels
 * work in place only on memory that the caller bound (runtime/bind.c).
 *
 * Without a buffer number (slot -1): inputs, constants, tokens, what is used by the return node,
 * what stays inside of a group that one kernel computes, and the values of nested graphs; the run
 * time keeps those on their own that it needs. Sizes may be symbolic, so
 * a buffer is reused for the same type if one is free, else the one freed last. */
#include "passes/rewrite.h"

enum { LOOK_BACK = 16 }; /* free buffers that are compared by type */

typedef struct buffer {
    int slot;
    const ir_type *type;
} buffer;

typedef struct planner {
    pass_context *context;
    gqac_arena *arena;
    ir_graph *graph;
    /* By the node's place in the order: values that begin and end there, as lists through `next`,
     * which go by value number. */
    ir_value **begins, **next_begin, **ends, **next_end;
    int n_nodes, n_values;
    buffer *free; /* a stack; never more than values */
    int n_free, n_slots;
} planner;

static void clear_graph(ir_graph *graph) {
    for (int i = 0; i < graph->n_inputs; i++)
        graph->inputs[i]->slot = -1;
    for (int i = 0; i < graph->n_constants; i++)
        graph->constants[i]->slot = -1;
}

/* Text may bring slots of its own; none of them counts. */
static gqac_status clear_slots(void *arg, ir_node *node) {
    (void)arg;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            node->outputs[i]->slot = -1;
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++)
        if (node->attrs[spec - node->op->attrs].graph)
            clear_graph(node->attrs[spec - node->op->attrs].graph);
    return GQAC_OK;
}

static bool wants_slot(const planner *p, const ir_value *value) {
    if (value->type.dtype == GQAC_TOKEN)
        return false;
    for (const ir_use *use = value->uses; use; use = use->next)
        if (use->node == p->graph->ret)
            return false;
    return !value->def->fused_into || ir_value_leaves(value);
}

/* The node that runs where a node of the main graph or of a nested one reads. */
static const ir_node *reader(const planner *p, const ir_node *node) {
    return ir_node_root(ir_node_within(node, p->graph));
}

/* Files a value under the node that makes it and the last one that needs it. */
static void file_value(planner *p, ir_value *value) {
    const unsigned first = ir_node_root(value->def)->mark;
    unsigned last = first;
    for (const ir_use *use = value->uses; use; use = use->next) {
        const ir_node *user = reader(p, use->node);
        last = user->mark > last ? user->mark : last;
    }
    p->next_begin[value->id] = p->begins[first];
    p->begins[first] = value;
    p->next_end[value->id] = p->ends[last];
    p->ends[last] = value;
}

/* Numbers nodes (mark) and values (id), and files the values; those of a node in their order. */
static gqac_status find_ends(planner *p) {
    for (ir_node *node = p->graph->first; node; node = node->next) {
        node->mark = (unsigned)p->n_nodes++;
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i])
                node->outputs[i]->id = p->n_values++;
    }
    p->begins = GQAC_ARENA_ARRAY(p->arena, ir_value *, (size_t)p->n_nodes);
    p->ends = GQAC_ARENA_ARRAY(p->arena, ir_value *, (size_t)p->n_nodes);
    p->next_begin = GQAC_ARENA_ARRAY(p->arena, ir_value *, (size_t)p->n_values);
    p->next_end = GQAC_ARENA_ARRAY(p->arena, ir_value *, (size_t)p->n_values);
    p->free = GQAC_ARENA_ARRAY(p->arena, buffer, (size_t)p->n_values);
    if (!p->begins || !p->ends || !p->next_begin || !p->next_end || !p->free)
        return gqac_diag_oom(p->context->diag, "planning");
    for (ir_node *node = p->graph->last; node; node = node->prev)
        for (int i = node->n_outputs - 1; i >= 0; i--)
            if (node->outputs[i] && wants_slot(p, node->outputs[i]))
                file_value(p, node->outputs[i]);
    return GQAC_OK;
}

static int take_slot(planner *p, const ir_type *type) {
    int at = p->n_free - 1;
    for (int i = at; i >= 0 && i > p->n_free - 1 - LOOK_BACK; i--)
        if (ir_type_equal(p->free[i].type, type)) {
            at = i;
            break;
        }
    if (at < 0)
        return p->n_slots++;
    const int slot = p->free[at].slot;
    p->free[at] = p->free[--p->n_free];
    return slot;
}

static gqac_status run_in(planner *p) {
    GQAC_TRY(find_ends(p));
    for (ir_node *node = p->graph->first; node; node = node->next) {
        for (ir_value *v = p->begins[node->mark]; v; v = p->next_begin[v->id])
            v->slot = take_slot(p, &v->type);
        for (const ir_value *v = p->ends[node->mark]; v; v = p->next_end[v->id])
            p->free[p->n_free++] = (buffer){v->slot, &v->type};
    }
    return GQAC_OK;
}

static gqac_status run(pass_context *context) {
    planner p = {.context = context, .graph = context->module->graph};
    p.arena = gqac_arena_create(0);
    if (!p.arena)
        return gqac_diag_oom(context->diag, "planning");
    clear_graph(p.graph);
    (void)ir_graph_walk(p.graph, clear_slots, NULL);
    gqac_status status = run_in(&p);
    gqac_arena_free(p.arena);
    return status;
}

const gqac_pass pass_plan = {
    .name = "plan",
    .summary = "buffers by liveness",
    .needs = PASS_CLAIMED | PASS_ORDERED,
    .gives = PASS_PLANNED,
    .run = run,
};
