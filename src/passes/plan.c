/* plan: determines how long values of the main graph live, and which of them share memory. A value
 * lives from the node whose kernel computes it to its last user; a node with nested graphs counts
 * as a user of the values that these take from outside. Every value gets a slot, which stands for a
 * piece of the context's arena. Two values share a slot if the kernel of the second can write it
 * over the first, which nobody reads later. Where pieces lie in the arena is decided when sizes are
 * known (runtime/layout.h).
 *
 * These have no slot (-1): inputs, constants, effect tokens, results of the graph, values that are
 * used only inside a fused group, values in the memory of another (lies_in), and values of nested
 * graphs. Those that need memory get their own from the run time. */
#include "ir/life.h"
#include "passes/rewrite.h"
#include "targets/target.h"

typedef struct planner {
    pass_context *context;
    ir_graph *graph;
    /* Lists of the values that begin at each node: `begins` has the first, by the node's position
     * in the order, and `next` the others, by value number. */
    ir_value **begins, **next;
    const ir_node **last; /* by value number: see ir_life_end */
    bool *taken;          /* by slot: another result of the same node already has it */
    int n_values, n_slots;
} planner;

static void clear_value(ir_value *value) {
    value->slot = -1;
    value->alias = NULL;
}

static void clear_graph(ir_graph *graph) {
    for (int i = 0; i < graph->n_inputs; i++)
        clear_value(graph->inputs[i]);
    for (int i = 0; i < graph->n_constants; i++)
        clear_value(graph->constants[i]);
}

/* Clears slots, which parsed text may have. */
static gqac_status clear_slots(void *arg, ir_node *node) {
    (void)arg;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            clear_value(node->outputs[i]);
    ir_graph *inner;
    for (int at = 0; (inner = ir_next_graph(node, &at));)
        clear_graph(inner);
    return GQAC_OK;
}

/* The value in whose memory this one lies (gqac_target.lies_in); NULL: it has its own. */
static const ir_value *lies_in(const planner *p, const ir_value *value) {
    const gqac_target *target = p->context->target;
    return target && target->lies_in ? target->lies_in(value) : NULL;
}

/* Several values may lie in the memory of one. They form a list that begins at its `alias` and
 * continues with theirs. No value lies in that of `value` yet, because such values are computed
 * later. */
static void see_in_place(const planner *p, ir_value *value) {
    ir_value *at = (ir_value *)lies_in(p, value);
    if (!at)
        return;
    value->alias = at->alias;
    at->alias = value;
}

static bool wants_slot(const planner *p, const ir_value *value) {
    if (value->type.dtype == GQAC_TOKEN)
        return false;
    for (const ir_use *use = value->uses; use; use = use->next)
        if (use->node == p->graph->ret)
            return false;
    return (!value->def->fused_into || ir_value_escapes(value)) && !lies_in(p, value);
}

/* Finds a value's last user, and adds the value to the list of the node that computes it. */
static void file_value(planner *p, ir_value *value) {
    const unsigned first = ir_node_root(value->def)->mark;
    p->last[value->id] = ir_life_end(value);
    p->next[value->id] = p->begins[first];
    p->begins[first] = value;
}

/* Numbers nodes (mark) and values (id), and lists the values of each node in order. */
static gqac_status find_lives(planner *p) {
    const int n_nodes = ir_life_number(p->graph);
    for (ir_node *node = p->graph->first; node; node = node->next)
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i]) {
                node->outputs[i]->id = p->n_values++;
                see_in_place(p, node->outputs[i]);
            }
    p->begins = GQAC_ARENA_ARRAY(p->context->scratch, ir_value *, (size_t)n_nodes);
    p->next = GQAC_ARENA_ARRAY(p->context->scratch, ir_value *, (size_t)p->n_values);
    p->taken = GQAC_ARENA_ARRAY(p->context->scratch, bool, (size_t)p->n_values);
    p->last = GQAC_ARENA_ARRAY(p->context->scratch, const ir_node *, (size_t)p->n_values);
    if (!p->begins || !p->next || !p->taken || !p->last)
        return gqac_diag_oom(p->context->diag, "planning");
    for (ir_node *node = p->graph->last; node; node = node->prev)
        for (int i = node->n_outputs - 1; i >= 0; i--)
            if (node->outputs[i] && wants_slot(p, node->outputs[i]))
                file_value(p, node->outputs[i]);
    return GQAC_OK;
}

/* The number of elements as a polynomial; NULL: not known. */
static const ir_dim *count_of(const planner *p, const ir_type *type) {
    ir_dims *dims = p->graph->module->dims;
    const ir_dim *count = type->rank < 0 ? NULL : ir_dim_const(dims, 1);
    for (int i = 0; i < type->rank && count; i++)
        count = type->dims[i] ? ir_dim_mul(dims, count, type->dims[i]) : NULL;
    return count;
}

static bool same_size(const planner *p, const ir_type *a, const ir_type *b) {
    const ir_dim *count = a->dtype == b->dtype ? count_of(p, a) : NULL;
    return count && count == count_of(p, b);
}

/* True if `value` may be written over that operand of its kernel. */
static bool fits_over(const planner *p, const ir_value *value, const ir_value *operand) {
    const ir_node *root = ir_node_root(value->def);
    return operand && operand->slot >= 0 && operand->graph == p->graph &&
           p->last[operand->id] == root && ir_node_root(operand->def) != root &&
           !p->taken[operand->slot] && same_size(p, &operand->type, &value->type) &&
           target_writes_over(root, value, operand);
}

/* The slot of an operand without later readers that `value` may be written over; -1: there is
 * none. */
static int dying_slot(const planner *p, const ir_value *value) {
    const ir_node *root = ir_node_root(value->def);
    for (int i = 0; i < root->n_inputs; i++)
        if (fits_over(p, value, root->inputs[i].value))
            return root->inputs[i].value->slot;
    for (const ir_node *node = root->prev; node && node->fused_into == root; node = node->prev)
        for (int i = 0; i < node->n_inputs; i++)
            if (fits_over(p, value, node->inputs[i].value))
                return node->inputs[i].value->slot;
    return -1;
}

static gqac_status run_in(planner *p) {
    GQAC_TRY(find_lives(p));
    for (ir_node *node = p->graph->first; node; node = node->next) {
        for (ir_value *v = p->begins[node->mark]; v; v = p->next[v->id]) {
            v->slot = dying_slot(p, v);
            if (v->slot < 0)
                v->slot = p->n_slots++;
            p->taken[v->slot] = true;
        }
        for (const ir_value *v = p->begins[node->mark]; v; v = p->next[v->id])
            p->taken[v->slot] = false;
    }
    return GQAC_OK;
}

static gqac_status run(pass_context *context) {
    planner p = {.context = context, .graph = context->module->graph};
    clear_graph(p.graph);
    (void)ir_graph_walk(p.graph, clear_slots, NULL);
    return run_in(&p);
}

const gqac_pass pass_plan = {
    .name = "plan",
    .summary = "memory by liveness",
    .needs = PASS_CLAIMED | PASS_ORDERED,
    .provides = PASS_PLANNED,
    .run = run,
};
