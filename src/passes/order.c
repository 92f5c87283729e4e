/* order: the order in which nodes run. Depth first from the graph's results, operands from the
 * left: it depends on the structure alone, not on the order in the file, and a value is made
 * shortly before it is needed. Tokens are operands, so effects stay in their order. The values that
 * nested graphs take from outside count as operands of the node that holds them. */
#include "passes/rewrite.h"

typedef struct frame {
    ir_node *node;
    int operand;     /* next operand to look at; n_inputs: then what nested graphs use */
    size_t captured; /* next entry of the list of captured values */
} frame;

typedef struct sorter {
    pass_context *context;
    gqac_arena *arena;
    ir_graph *graph;
    frame *stack;
    size_t depth, capacity;
    ir_value **captured; /* of one node after another, each list ends with NULL */
    size_t n_captured, captured_capacity;
} sorter;

enum { UNSEEN, OPEN, DONE };

static gqac_status no_memory(const sorter *s) {
    return gqac_diag_oom(s->context->diag, "ordering");
}

/* Room for one more item of an array that grows by doubling. */
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
    if (!grow(s->arena, &items, s->n_captured, &s->captured_capacity, sizeof *s->captured))
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

/* Lists what the graphs of a node use of the graph that is sorted. */
static gqac_status list_captured(sorter *s, ir_node *node, size_t *first) {
    ir_graph *inner;
    *first = s->n_captured;
    for (int at = 0; (inner = pass_next_graph(node, &at));)
        GQAC_TRY(ir_graph_walk_all(inner, visit_captured, s));
    return push_captured(s, NULL);
}

/* ---- depth first --------------------------------------------------------- */

static gqac_status open_node(sorter *s, ir_node *node) {
    void *items = s->stack;
    if (!grow(s->arena, &items, s->depth, &s->capacity, sizeof *s->stack))
        return no_memory(s);
    s->stack = items;
    frame *f = &s->stack[s->depth++];
    *f = (frame){.node = node};
    node->mark = OPEN;
    return list_captured(s, node, &f->captured);
}

/* The next node the top of the stack waits for; NULL when there is none left. */
static ir_node *next_maker(const sorter *s, frame *f) {
    while (f->operand < f->node->n_inputs || s->captured[f->captured]) {
        const ir_value *value = f->operand < f->node->n_inputs ? f->node->inputs[f->operand++].value
                                                               : s->captured[f->captured++];
        if (value && value->def && value->graph == s->graph && value->def->mark == UNSEEN)
            return value->def;
    }
    return NULL;
}

/* Every node is reached (dead ones were swept), so moving each one to the end when all it waits for
 * is placed leaves the list in the new order. */
static gqac_status sort_nodes(sorter *s) {
    for (ir_node *node = s->graph->first; node; node = node->next)
        node->mark = UNSEEN;
    GQAC_TRY(open_node(s, s->graph->ret));
    while (s->depth) {
        frame *f = &s->stack[s->depth - 1];
        ir_node *node = next_maker(s, f);
        if (node) {
            GQAC_TRY(open_node(s, node));
            continue;
        }
        s->depth--;
        f->node->mark = DONE;
        if (f->node != s->graph->ret)
            ir_node_move(f->node, s->graph, NULL);
    }
    return GQAC_OK;
}

/* Nested graphs first: what they take from outside is listed in their order. Recursion follows
 * them, and the verifier bounds its depth. */
static gqac_status sort_graph(pass_context *context, ir_graph *graph) {
    for (ir_node *node = graph->first; node; node = node->next) {
        ir_graph *inner;
        for (int at = 0; (inner = pass_next_graph(node, &at));)
            GQAC_TRY(sort_graph(context, inner));
    }
    sorter s = {.context = context, .graph = graph, .arena = gqac_arena_create(0)};
    if (!s.arena)
        return no_memory(&s);
    gqac_status status = sort_nodes(&s);
    gqac_arena_free(s.arena);
    return status;
}

static gqac_status run(pass_context *context) {
    pass_sweep(context->module);
    context->changed++; /* a plan made before is void */
    return sort_graph(context, context->module->graph);
}

const gqac_pass pass_order = {
    .name = "order",
    .summary = "one order of nodes, by structure alone",
    .needs = PASS_CLAIMED,
    .gives = PASS_ORDERED,
    .breaks = PASS_PLANNED,
    .run = run,
};
