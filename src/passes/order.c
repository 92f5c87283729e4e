/* order: determines the order in which nodes run: depth first from the graph's results, operands
 * from left to right. So it depends only on the structure, not on the order in the file, and a
 * value is computed shortly before it is needed. Tokens are operands, so effects stay in order.
 * Values that nested graphs use from outside count as operands of the node that holds the graphs,
 * and a group that one kernel computes counts as one node with the operands of all its nodes. */
#include "passes/rewrite.h"

typedef struct frame {
    unsigned root;   /* the root's number; groups may have one node */
    ir_node *node;   /* the node of the group whose operands are visited now */
    int operand;     /* next operand to visit; from n_inputs on: captured values */
    size_t captured; /* next entry of the list of captured values */
} frame;

/* By ir_node.mark: */
typedef struct place {
    ir_node *first; /* first node of the group whose root is this node */
    ir_node *next;  /* next node of the same group */
    int state;
} place;

typedef struct sorter {
    pass_context *context;
    ir_graph *graph;
    place *places;
    frame *stack;
    size_t depth, capacity;
    ir_value **captured; /* lists of captured values, one node after another, each ends with NULL */
    size_t n_captured, captured_capacity;
} sorter;

enum { UNSEEN, OPEN, DONE };

static gqac_status no_memory(const sorter *s) {
    return gqac_diag_oom(s->context->diag, "ordering");
}

/* Grows an array, by doubling, so that it has capacity for one more item. */
static bool grow(gqac_arena *arena, void **items, size_t n, size_t *capacity, size_t size) {
    if (n < *capacity)
        return true;
    const size_t wanted = *capacity ? 2 * *capacity : 64;
    char *more = gqac_arena_calloc(arena, wanted, size);
    if (!more)
        return false;
    for (size_t i = 0; i < n * size; i++)
        more[i] = ((char *)*items)[i];
    *items = more;
    *capacity = wanted;
    return true;
}

/* ---- values taken from outside ------------------------------------------- */

static gqac_status push_captured(sorter *s, ir_value *value) {
    void *items = s->captured;
    if (!grow(s->context->scratch, &items, s->n_captured, &s->captured_capacity,
              sizeof *s->captured))
        return no_memory(s);
    s->captured = items;
    s->captured[s->n_captured++] = value;
    return GQAC_OK;
}

static gqac_status visit_captured(void *arg, ir_node *node) {
    sorter *s = arg;
    for (int i = 0; i < node->n_inputs; i++) {
        ir_value *value = node->inputs[i].value;
        if (value && value->graph == s->graph && value->def)
            GQAC_TRY(push_captured(s, value));
    }
    return GQAC_OK;
}

/* Lists the values of the sorted graph that the nested graphs of a node use. */
static gqac_status list_captured(sorter *s, ir_node *node, size_t *first) {
    ir_graph *inner;
    *first = s->n_captured;
    for (int at = 0; (inner = ir_next_graph(node, &at));)
        GQAC_TRY(ir_graph_walk_all(inner, visit_captured, s));
    return push_captured(s, NULL);
}

/* ---- depth first --------------------------------------------------------- */

static gqac_status open_node(sorter *s, unsigned root) {
    void *items = s->stack;
    if (!grow(s->context->scratch, &items, s->depth, &s->capacity, sizeof *s->stack))
        return no_memory(s);
    s->stack = items;
    frame *f = &s->stack[s->depth++];
    *f = (frame){.root = root, .node = s->places[root].first};
    s->places[root].state = OPEN;
    return list_captured(s, f->node, &f->captured);
}

/* Returns the next operand of the visited node; false: there is none left. */
static bool next_operand(const sorter *s, frame *f, const ir_value **value) {
    if (f->operand < f->node->n_inputs)
        *value = f->node->inputs[f->operand++].value;
    else if (s->captured[f->captured])
        *value = s->captured[f->captured++];
    else
        return false;
    return true;
}

/* Finds the next group that the top of the stack depends on; *wait is false if there is none
 * left. */
static gqac_status next_maker(sorter *s, frame *f, bool *wait, unsigned *root) {
    for (*wait = false;;) {
        const ir_value *value;
        while (next_operand(s, f, &value)) {
            if (!value || !value->def || value->graph != s->graph)
                continue;
            *root = ir_node_root(value->def)->mark;
            if (s->places[*root].state == UNSEEN) {
                *wait = true;
                return GQAC_OK;
            }
        }
        f->node = s->places[f->node->mark].next;
        if (!f->node)
            return GQAC_OK;
        f->operand = 0;
        GQAC_TRY(list_captured(s, f->node, &f->captured));
    }
}

/* Numbers nodes and lists the nodes of each group in their present order. */
static gqac_status list_groups(sorter *s) {
    unsigned n = 0;
    for (ir_node *node = s->graph->first; node; node = node->next)
        node->mark = n++;
    s->graph->ret->mark = n;
    s->places = GQAC_ARENA_ARRAY(s->context->scratch, place, (size_t)n + 1);
    if (!s->places)
        return no_memory(s);
    s->places[n] = (place){.first = s->graph->ret};
    for (ir_node *node = s->graph->last; node; node = node->prev) {
        place *root = &s->places[ir_node_root(node)->mark];
        s->places[node->mark].next = root->first;
        root->first = node;
    }
    return GQAC_OK;
}

/* Moves each group to the end of the list once all groups that it depends on have been moved. Every
 * node is reached, because dead ones were swept, so the list is then in the new order. */
static gqac_status sort_nodes(sorter *s) {
    GQAC_TRY(list_groups(s));
    GQAC_TRY(open_node(s, s->graph->ret->mark));
    while (s->depth) {
        bool wait;
        unsigned root;
        frame *f = &s->stack[s->depth - 1];
        GQAC_TRY(next_maker(s, f, &wait, &root));
        if (wait) {
            GQAC_TRY(open_node(s, root));
            continue;
        }
        s->depth--;
        place *p = &s->places[f->root];
        p->state = DONE;
        for (ir_node *node = p->first; node && node != s->graph->ret;
             node = s->places[node->mark].next)
            ir_node_move(node, s->graph, NULL);
    }
    return GQAC_OK;
}

/* Sorts nested graphs first, because captured values are listed in their order. Recursion follows
 * nested graphs, whose depth the verifier limits. */
static gqac_status sort_graph(pass_context *context, ir_graph *graph) {
    for (ir_node *node = graph->first; node; node = node->next) {
        ir_graph *inner;
        for (int at = 0; (inner = ir_next_graph(node, &at));)
            GQAC_TRY(sort_graph(context, inner));
    }
    return sort_nodes(&(sorter){.context = context, .graph = graph});
}

static gqac_status run(pass_context *context) {
    pass_sweep(context->module);
    context->changed++; /* an earlier plan is no longer valid */
    return sort_graph(context, context->module->graph);
}

const gqac_pass pass_order = {
    .name = "order",
    .summary = "one order of nodes, by structure alone",
    .needs = PASS_CLAIMED,
    .provides = PASS_ORDERED,
    .breaks = PASS_PLANNED,
    .run = run,
};
