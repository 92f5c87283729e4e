/* last_rows: lets a step compute only those rows of logits that are wanted. The result `logits` is
 * followed back through nodes that compute each row by itself (the matmul over the vocabulary,
 * softcap, cast, a final norm): one operand [B,S,..] and otherwise constants. take_rows is inserted
 * before the first of them; it keeps the rows whose indices the run time passes as the input
 * gqac.logit_rows. If the exporter selected the last row itself (prune_lm_head: Gather of index -1
 * and Unsqueeze, or a Slice), take_rows replaces that, so that such a model can return logits of
 * any row. This changes no bits, because those nodes do not mix rows. Models whose logits are
 * computed in another way do not change. */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/rewrite.h"

enum {
    DEPTH = 16, /* nodes between a constant and an operand computed from it */
    VISITS = 1024,
};

/* True if a value depends only on constants. Many paths may lead to one node, so after too many
 * visits the answer is no. */
static bool is_fixed(const ir_value *value, int depth, int *visits) {
    if (!value || value->constant)
        return true;
    if (!value->def || depth == 0 || --*visits < 0 || value->def->op->flags & IR_OP_EFFECT ||
        ir_holds_graphs(value->def))
        return false;
    for (int i = 0; i < value->def->n_inputs; i++)
        if (!is_fixed(value->def->inputs[i].value, depth - 1, visits))
            return false;
    return true;
}

static bool is_local(const ir_node *node) {
    const gqac_op *op = op_of(node);
    if (node->op->flags & IR_OP_EFFECT || ir_holds_graphs(node))
        return false;
    if (node->op->rows == IR_ROWS_SHAPE)
        return op->mixes && !op->mixes(node);
    return node->op->rows == IR_ROWS_LOCAL;
}

/* True if the value is [B,S,..] with the B and S of the logits. */
static bool is_rows(const ir_value *value, const ir_type *logits) {
    const ir_type *t = &value->type;
    return t->rank == 3 && t->dims[0] == logits->dims[0] && t->dims[1] == logits->dims[1];
}

/* The one operand whose rows a node turns into the rows of `value`; -1: there is none. */
static int operand_of(const ir_value *value, const ir_type *logits) {
    const ir_node *node = value->def;
    int at = -1;
    if (!node || value->result != 0 || !is_local(node))
        return -1;
    for (int i = 1; i < node->n_outputs; i++)
        if (node->outputs[i] && !ir_value_unused(node->outputs[i]))
            return -1;
    for (int i = 0; i < node->n_inputs; i++) {
        int visits = VISITS;
        if (is_fixed(node->inputs[i].value, DEPTH, &visits))
            continue;
        if (at >= 0)
            return -1;
        at = i;
    }
    return at >= 0 && is_rows(node->inputs[at].value, logits) ? at : -1;
}

/* True if these dims are those of token ids [B,S]. */
static bool is_tokens(const ir_graph *graph, const ir_dim *batch, const ir_dim *length) {
    int64_t n;
    for (int i = 0; i < graph->n_inputs; i++) {
        const ir_type *t = &graph->inputs[i]->type;
        if (batch && length && t->rank == 2 && t->dims[0] == batch && t->dims[1] == length &&
            !ir_dim_is_const(t->dims[1], &n))
            return true;
    }
    return false;
}

/* The result `logits`, when it is [B,_,V]. */
static ir_value *find_logits(const ir_graph *graph) {
    ir_value *logits = pass_logits(graph);
    return logits && logits->type.rank == 3 ? logits : NULL;
}

static bool used_once(const ir_value *value) {
    return value->uses && !value->uses->next;
}

ir_use *pass_first_local(const ir_value *rows) {
    const ir_type type = rows->type;
    ir_use *first = NULL;
    while (rows->def && used_once(rows)) {
        const int at = operand_of(rows, &type);
        if (at < 0)
            break;
        first = &rows->def->inputs[at];
        rows = first->value;
    }
    return first;
}

/* ---- the last row, as exporters take it ---------------------------------- */

static bool is_int(const ir_value *value, int rank, int64_t wanted) {
    const gqac_tensor *t = pass_constant(value);
    return t && t->rank == rank && gqac_tensor_count(t) == 1 &&
           (t->dtype == GQAC_I64 || t->dtype == GQAC_I32) && op_get_i64(t, 0) == wanted;
}

/* Returns x if `node` is x[:, -1:, :], by Slice or by Gather of one index; else NULL. */
static ir_value *sliced_operand(const ir_node *node) {
    enum { DATA, STARTS, ENDS, AXES, STEPS };
    if (op_is(node, "", "Gather"))
        return ir_attr_int(node, "axis") == 1 && is_int(ir_node_input(node, 1), 1, -1)
                   ? ir_node_input(node, DATA)
                   : NULL;
    if (!op_is(node, "", "Slice") || !is_int(ir_node_input(node, STARTS), 1, -1) ||
        !is_int(ir_node_input(node, AXES), 1, 1) ||
        (ir_node_input(node, STEPS) && !is_int(ir_node_input(node, STEPS), 1, 1)))
        return NULL;
    const gqac_tensor *end = pass_constant(ir_node_input(node, ENDS));
    return end && gqac_tensor_count(end) == 1 && op_get_i64(end, 0) >= INT32_MAX
               ? ir_node_input(node, DATA)
               : NULL;
}

/* The same, or Unsqueeze(Gather(x, -1)): the rows [B,S,H] whose last one is `value` [B,1,H]. */
static ir_value *rows_of_last(const ir_graph *graph, const ir_value *value) {
    const ir_node *node = value->def;
    if (!node)
        return NULL;
    ir_value *x = sliced_operand(node);
    const ir_value *row = ir_node_input(node, 0);
    if (op_is(node, "", "Unsqueeze") && is_int(ir_node_input(node, 1), 1, 1) && row->def &&
        op_is(row->def, "", "Gather") && ir_attr_int(row->def, "axis") == 1 &&
        is_int(ir_node_input(row->def, 1), 0, -1))
        x = ir_node_input(row->def, 0);
    return x && x->type.rank == 3 && is_tokens(graph, x->type.dims[0], x->type.dims[1]) ? x : NULL;
}

/* ---- take_rows ----------------------------------------------------------- */

/* Finds the operand that take_rows replaces, and *x, whose rows it takes; NULL: there is none. */
static ir_use *find_operand(const ir_graph *graph, ir_value **x) {
    ir_value *logits = find_logits(graph);
    ir_use *first = logits ? pass_first_local(logits) : NULL;
    if (!first)
        return NULL;
    *x = first->value;
    if (is_tokens(graph, logits->type.dims[0], logits->type.dims[1]))
        return first;
    *x = used_once(first->value) ? rows_of_last(graph, first->value) : NULL;
    return *x ? first : NULL;
}

const ir_node *pass_last_row(const ir_graph *graph) {
    ir_value *x = NULL;
    const ir_use *first = find_operand(graph, &x);
    if (!first || x == first->value)
        return NULL;
    const ir_node *node = first->value->def;
    return op_is(node, "", "Unsqueeze") ? ir_node_input(node, 0)->def : node;
}

static gqac_status run(pass_context *context) {
    ir_graph *graph = context->module->graph;
    ir_value *x = NULL;
    if (!(context->facts & PASS_STATEFUL)) /* `stateful` was disabled */
        return GQAC_OK;
    if (!pass_input(graph, "gqac.new_len") || pass_input(graph, "gqac.logit_rows"))
        return GQAC_OK; /* not such a model, or it ran before */
    ir_use *first = find_operand(graph, &x);
    if (!first)
        return GQAC_OK;
    const ir_dim *count = ir_dim_symbol(context->module->dims, "gqac.logit_rows");
    ir_value *rows = ir_graph_add_input(graph, "gqac.logit_rows",
                                        ir_type_make(context->module, GQAC_I64, 1, &count));
    if (!rows)
        return gqac_diag_oom(context->diag, "an input");
    ir_builder b = {.graph = graph, .before = first->node, .diag = context->diag};
    ir_value *taken = OP_BUILD(&b, "take_rows", .in = {x, rows});
    GQAC_TRY(b.status);
    GQAC_TRY(op_infer(taken->def, context->diag));
    ir_node_set_input(first->node, (int)(first - first->node->inputs), taken);
    context->changed++;
    return pass_infer_again(graph, context->diag);
}

const gqac_pass pass_last_rows = {
    .name = "last_rows",
    .summary = "only the logits that a step requests are computed",
    .needs = PASS_TYPED,
    .breaks = PASS_CLAIMED | PASS_ORDERED | PASS_PLANNED,
    .sequences = true,
    .run = run,
};
