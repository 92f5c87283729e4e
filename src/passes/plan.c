/* plan: which values of the main graph share a buffer. A value holds its buffer from its node to
 * its last user; a node that holds graphs uses what they take from outside. The outputs of a node
 * never share with its inputs, so kernels
 * work in place only on memory that the caller bound (runtime/bind.c).
 *
 * Without a buffer number (slot -1): inputs, constants, tokens, what is used by the return node,
 * and the values of nested graphs; the run time keeps those on their own. Sizes may be symbolic, so
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
    /* By the node's place in the order: its values that end there, as lists through `next`. */
    ir_value **ends;
    ir_value **next; /* by value number */
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
    return true;
}

/* The node of the main graph that reads a use: the one that holds or computes the user. */
static const ir_node *reader(const planner *p, const ir_node *node) {
    while (node->graph != p->graph)
        node = node->graph->parent;
    return node->fused_into ? node->fused_into : node;
}

/* Numbers nodes (mark) and values (id), and files each value under the last node that needs it. */
static gqac_status find_ends(planner *p) {
    for (ir_node *node = p->graph->first; node; node = node->next) {
        node->mark = (unsigned)p->n_nodes++;
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i])
                node->outputs[i]->id = p->n_values++;
    }
    p->ends = GQAC_ARENA_ARRAY(p->arena, ir_value *, (size_t)p->n_nodes);
    p->next = GQAC_ARENA_ARRAY(p->arena, ir_value *, (size_t)p->n_values);
    p->free = GQAC_ARENA_ARRAY(p->arena, buffer, (size_t)p->n_values);
    if (!p->ends || !p->next || !p->free)
        return gqac_diag_oom(p->context->diag, "planning");
    for (ir_node *node = p->graph->first; node; node = node->next)
        for (int i = 0; i < node->n_outputs; i++) {
            ir_value *value = node->outputs[i];
            if (!value || !wants_slot(p, value))
                continue;
            unsigned last = node->mark;
            for (const ir_use *use = value->uses; use; use = use->next) {
                const ir_node *user = reader(p, use->node);
                last = user->mark > last ? user->mark : last;
            }
            p->next[value->id] = p->ends[last];
            p->ends[last] = value;
        }
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
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i] && wants_slot(p, node->outputs[i]))
                node->outputs[i]->slot = take_slot(p, &node->outputs[i]->type);
        for (const ir_value *v = p->ends[node->mark]; v; v = p->next[v->id])
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
