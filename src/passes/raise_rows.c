/* Nodes that mix rows. For a query that sees no key, Attention returns zeros, but the softmax of a
 * tracer the mean of all values. No other row depends on that, unless a later node mixes the rows
 * of a call: DynamicQuantizeLinear has one scale for the whole tensor, a convolution reads earlier
 * rows, and a recurrent state depends on all rows. */
#include "passes/raise.h"
#include "passes/rewrite.h"

/* Ops that mix rows by their schema, but through which rows of padding do not reach other rows
 * here: attention that is written out hides them by its own mask, and ops that move rows do not
 * combine them. */
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
/* Ops that read earlier rows through a state, without a mask of their own. */
static const char *const recurrent[] = {"CausalConvWithState", "LinearAttention", NULL};

static bool mixes(const ir_node *node) {
    if (node->op->rows == IR_ROWS_STATE)
        return pass_listed(recurrent, node->op->name);
    return pass_mixes_rows(node) && !pass_listed(apart, node->op->name);
}

/* Nodes that mix rows are numbered from the last one on, from 1. The mark of a node is the number
 * of the first such node that depends on it; 0: there is none. */
typedef struct search {
    const ir_node **found; /* found[mark - 1]; NULL: only counts */
    unsigned n;
} search;

/* Lengths do not depend on the elements of rows. */
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

/* Marks backwards from the results. Recursion follows nested graphs, whose depth the verifier
 * limits. */
static void sweep(search *s, const ir_graph *graph) {
    if (graph->parent)
        show(graph->ret, graph->parent->mark);
    for (ir_node *node = graph->last; node; node = node->prev) {
        ir_graph *inner;
        if (mixes(node)) {
            s->found[s->n++] = node;
            node->mark = s->n;
        }
        for (int at = 0; (inner = ir_next_graph(node, &at));)
            sweep(s, inner);
        show(node, node->mark);
    }
}

static gqac_status count(void *arg, ir_node *node) {
    search *s = arg;
    node->mark = 0;
    s->n += mixes(node);
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
            r->b.status = gqac_diag_oom(r->b.diag, "nodes that mix rows");
            return NULL;
        }
        s.n = 0;
        sweep(&s, module->graph);
        rows->found = s.found;
    }
    return from->mark ? rows->found[from->mark - 1] : NULL;
}
