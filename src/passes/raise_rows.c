/* Rows that are read together. Raised, a query that sees no key gets zeros, where a tracer's
 * softmax gives it the mean of all values. That shows in no other row, unless something behind
 * takes the rows of a call together: the scale of DynamicQuantizeLinear is that of its whole
 * tensor, a convolution reads the rows before, and a recurrent state has all of them in it. */
#include <string.h>

#include "passes/raise.h"
#include "passes/rewrite.h"

/* What mixes rows by its schema, and yet shows no row to others here. Attention that is written out
 * weighs rows by its own mask, which hides those of padding; what moves rows keeps them apart. */
static const char *const apart[] = {
    "attention",
    "Concat",
    "Einsum",
    "FusedMatMul",
    "Gather",
    "GatherElements",
    "GatherND",
    "MatMul",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "QLinearMatMul",
    "Range",
    "Slice",
    "Softmax",
    "Split",
    "ScatterElements",
    "ScatterND",
    "Trilu",
    NULL,
};
/* What reads rows before through a state, with no mask of its own. */
static const char *const recurrent[] = {"CausalConvWithState", "LinearAttention", NULL};

static bool is_among(const char *const *names, const ir_node *node) {
    while (*names && strcmp(*names, node->op->name))
        names++;
    return *names != NULL;
}

static bool takes_together(const ir_node *node) {
    if (node->op->rows == IR_ROWS_STATE)
        return is_among(recurrent, node);
    return pass_mixes_rows(node) && !is_among(apart, node);
}

/* Marks count the nodes that take rows together, from the last one on: the mark of a node is that
 * of the first which depends on it, 0 where none does. */
typedef struct search {
    const ir_node **found; /* found[mark - 1]; NULL: only counts */
    unsigned n;
} search;

/* Lengths depend on no number in the rows. */
static bool is_length(const ir_node *node) {
    return op_is(node, "", "Shape") || op_is(node, "", "Size");
}

static void show(const ir_node *node, unsigned mark) {
    for (int i = 0; i < node->n_inputs && !is_length(node); i++) {
        ir_node *def = node->inputs[i].value ? node->inputs[i].value->def : NULL;
        if (def && def->mark < mark)
            def->mark = mark;
    }
}

/* From the results back. Recursion follows nested graphs, whose depth the verifier bounds. */
static void sweep(search *s, const ir_graph *graph) {
    if (graph->parent)
        show(graph->ret, graph->parent->mark);
    for (ir_node *node = graph->last; node; node = node->prev) {
        ir_graph *inner;
        if (takes_together(node)) {
            s->found[s->n++] = node;
            node->mark = s->n;
        }
        for (int at = 0; (inner = pass_next_graph(node, &at));)
            sweep(s, inner);
        show(node, node->mark);
    }
}

static gqac_status count(void *arg, ir_node *node) {
    search *s = arg;
    node->mark = 0;
    s->n += takes_together(node);
    return GQAC_OK;
}

const ir_node *raise_find_mixing(raise *r, const ir_node *from) {
    const ir_module *module = r->context->module;
    raise_rows *rows = r->rows_together;
    search s = {0};
    if (!rows->found) {
        (void)ir_graph_walk(module->graph, count, &s);
        s.found = GQAC_ARENA_ARRAY(module->arena, const ir_node *, (size_t)s.n + 1);
        if (!s.found) {
            r->b.status = gqac_diag_oom(r->b.diag, "rows that are read together");
            return NULL;
        }
        s.n = 0;
        sweep(&s, module->graph);
        rows->found = s.found;
    }
    return from->mark ? rows->found[from->mark - 1] : NULL;
}
