/* last_rows: a step that wants only the logits behind the last new token of each row computes only
 * those. The result `logits` is followed back through nodes that compute each row by itself (the
 * matmul over the vocabulary, softcap, cast, a final norm): one operand [B,S,..] and otherwise
 * constants. Before the first of them goes take_rows, which keeps all rows or the last one as the
 * run time says by the input gqac.logit_rows. Bits do not depend on it, for those nodes do not mix
 * rows. Models whose logits are not made so are left as they are. */
#include "passes/rewrite.h"

#include <string.h>

enum { DEPTH = 16 /* nodes between a constant and an operand computed from it */ };

/* Does a value depend on constants only? */
static bool is_fixed(const ir_value *value, int depth) {
    if (!value || value->constant)
        return true;
    if (!value->def || depth == 0 || value->def->op->flags & IR_OP_EFFECT ||
        pass_holds_graphs(value->def))
        return false;
    for (int i = 0; i < value->def->n_inputs; i++)
        if (!is_fixed(value->def->inputs[i].value, depth - 1))
            return false;
    return true;
}

static bool is_local(const ir_node *node) {
    const gqac_op *op = op_of(node);
    if (node->op->flags & IR_OP_EFFECT || pass_holds_graphs(node))
        return false;
    if (node->op->rows == IR_ROWS_SHAPE)
        return op->mixes && !op->mixes(node);
    return node->op->rows == IR_ROWS_LOCAL;
}

/* Is it [B,S,..] as the logits are? */
static bool is_rows(const ir_value *value, const ir_type *logits) {
    const ir_type *t = &value->type;
    return t->rank == 3 && t->dims[0] == logits->dims[0] && t->dims[1] == logits->dims[1];
}

/* The one operand of a node that makes rows of `value` from rows; -1 when it is none such. */
static int operand_of(const ir_value *value, const ir_type *logits) {
    const ir_node *node = value->def;
    int at = -1;
    if (!node || value->result != 0 || !is_local(node))
        return -1;
    for (int i = 1; i < node->n_outputs; i++)
        if (node->outputs[i] && !ir_value_unused(node->outputs[i]))
            return -1;
    for (int i = 0; i < node->n_inputs; i++) {
        if (is_fixed(node->inputs[i].value, DEPTH))
            continue;
        if (at >= 0)
            return -1;
        at = i;
    }
    return at >= 0 && is_rows(node->inputs[at].value, logits) ? at : -1;
}

static ir_value *find_input(const ir_graph *graph, const char *name) {
    for (int i = 0; i < graph->n_inputs; i++)
        if (!strcmp(graph->inputs[i]->name, name))
            return graph->inputs[i];
    return NULL;
}

/* The result with that name, when it is [B,S,V] for tokens [B,S] and new_len [B]. */
static const ir_value *find_logits(const ir_graph *graph, const ir_value *new_len) {
    const ir_value *logits = NULL;
    for (int i = 0; i < graph->ret->n_inputs; i++)
        if (graph->result_names[i] && !strcmp(graph->result_names[i], "logits"))
            logits = graph->ret->inputs[i].value;
    if (!logits || logits->type.rank != 3 || !logits->type.dims[0] || !logits->type.dims[1] ||
        new_len->type.rank != 1 || new_len->type.dims[0] != logits->type.dims[0])
        return NULL;
    for (int i = 0; i < graph->n_inputs; i++) {
        const ir_type *t = &graph->inputs[i]->type;
        int64_t length;
        if (t->rank == 2 && t->dims[0] == logits->type.dims[0] &&
            t->dims[1] == logits->type.dims[1] && !ir_dim_is_const(t->dims[1], &length))
            return logits;
    }
    return NULL;
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

static gqac_status run(pass_context *context) {
    ir_graph *graph = context->module->graph;
    if (!(context->facts & PASS_STATEFUL)) /* `stateful` was disabled */
        return GQAC_OK;
    ir_value *new_len = find_input(graph, "gqac.new_len");
    const ir_value *value = new_len ? find_logits(graph, new_len) : NULL;
    if (!value || find_input(graph, "gqac.logit_rows"))
        return GQAC_OK;                      /* not such a model, or it ran before */
    ir_use *first = pass_first_local(value); /* take_rows goes before it */
    if (!first)
        return GQAC_OK;
    ir_type scalar = ir_type_make(context->module, GQAC_I64, 0, NULL);
    ir_value *which = ir_graph_add_input(graph, "gqac.logit_rows", scalar);
    if (!which)
        return gqac_diag_oom(context->diag, "an input");
    ir_builder b = {.graph = graph, .before = first->node, .diag = context->diag};
    ir_node *take =
        op_build(&b, "gqac", "take_rows", 3, (ir_value *[]){first->value, new_len, which}, 1);
    if (b.status != GQAC_OK)
        return b.status;
    GQAC_TRY(op_infer(take, context->diag));
    ir_node_set_input(first->node, (int)(first - first->node->inputs), take->outputs[0]);
    for (ir_node *node = take->next; node; node = node->next)
        GQAC_TRY(pass_infer_node(node, context->diag));
    context->changed++;
    return GQAC_OK;
}

const gqac_pass pass_last_rows = {
    .name = "last_rows",
    .summary = "logits of the last row alone where a step wants no more",
    .needs = PASS_TYPED,
    .breaks = PASS_CLAIMED | PASS_ORDERED | PASS_PLANNED,
    .sequences = true,
    .run = run,
};
