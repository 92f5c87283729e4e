/* Shared by passes (see rewrite.h). */
#include "passes/rewrite.h"

#include <string.h>

#include "ops/shared.h"

int64_t pass_axis(const ir_node *node, int rank) {
    const int64_t axis = ir_attr_int(node, "axis");
    return axis < 0 ? axis + rank : axis;
}

ir_value *pass_input(const ir_graph *graph, const char *name) {
    for (int i = 0; i < graph->n_inputs; i++)
        if (!strcmp(graph->inputs[i]->name, name))
            return graph->inputs[i];
    return NULL;
}

bool pass_same_type(const ir_value *a, const ir_value *b) {
    if (a->type.dtype == GQAC_NONE || a->type.rank < 0 || !ir_type_equal(&a->type, &b->type))
        return false;
    for (int i = 0; i < a->type.rank; i++)
        if (!a->type.dims[i])
            return false;
    return true;
}

bool pass_is_past(const ir_value *value) {
    return !value->def && !value->constant && strncmp(value->name, "past", 4) == 0;
}

bool pass_widens(gqac_dtype narrow, gqac_dtype wide) {
    return wide == GQAC_F32 && OP_IN(OP_BIT(F16) | OP_BIT(BF16), narrow);
}

bool pass_is_returned_cast(const ir_node *node) {
    bool only = op_is(node, "", "Cast");
    for (const ir_use *use = only ? node->outputs[0]->uses : NULL; use && only; use = use->next)
        only = use->node == node->graph->ret;
    return only && node->outputs[0]->uses;
}

bool pass_is_attention_mask(const ir_graph *main, const ir_value *value) {
    return !value->def && !value->constant && value->graph == main && value->type.rank == 2 &&
           strcmp(value->name, "attention_mask") == 0;
}

bool pass_is_embeds(const ir_value *input) {
    return input->type.rank == 3 && strcmp(input->name, "inputs_embeds") == 0;
}

ir_value *pass_tokens(const ir_graph *graph) {
    ir_value *ids = pass_input(graph, "input_ids");
    if (ids && ids->type.rank == 2)
        return ids;
    for (int i = 0; i < graph->n_inputs; i++)
        if (pass_is_embeds(graph->inputs[i]))
            return graph->inputs[i];
    return NULL;
}

ir_value *pass_logits(const ir_graph *graph) {
    for (int i = 0; i < graph->ret->n_inputs; i++)
        if (graph->result_names[i] && !strcmp(graph->result_names[i], "logits"))
            return graph->ret->inputs[i].value;
    return NULL;
}

bool pass_copy_results(const pass_context *context, int more, pass_results *r) {
    const ir_graph *graph = context->module->graph;
    const size_t most = (size_t)graph->ret->n_inputs + (size_t)more + 1;
    r->n = graph->ret->n_inputs;
    r->values = GQAC_ARENA_ARRAY(context->scratch, ir_value *, most);
    r->names = GQAC_ARENA_ARRAY(context->scratch, const char *, most);
    if (!r->values || !r->names)
        return false;
    for (int i = 0; i < r->n; i++) {
        r->values[i] = graph->ret->inputs[i].value;
        r->names[i] = graph->result_names[i];
    }
    return true;
}

static gqac_status clear_mark(void *arg, ir_node *node) {
    (void)arg;
    node->mark = 0;
    return GQAC_OK;
}

void pass_clear_marks(ir_graph *graph) {
    (void)ir_graph_walk_all(graph, clear_mark, NULL);
}

const gqac_tensor *pass_constant(const ir_value *value) {
    const gqac_tensor *tensor = value ? value->constant : NULL;
    return tensor && (tensor->data || gqac_tensor_count(tensor) == 0) ? tensor : NULL;
}

bool pass_is_int(const ir_value *value, int64_t wanted) {
    int64_t x, n;
    return ir_const_ints(value, 1, &x, &n) && n == 1 && x == wanted;
}

bool pass_listed(const char *const *list, const char *name) {
    for (; list && *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

gqac_status pass_refuse(const ir_node *node, gqac_diag *diag, const char *what, const char *rule,
                        const char *hint) {
    op_fail(node, diag, GQAC_UNSUPPORTED, "%s", what);
    gqac_diag_rule(diag, "%s", rule);
    gqac_diag_hint(diag, "%s", hint);
    return GQAC_UNSUPPORTED;
}
