/* defaults: inputs that have the same value in every step of a sequence become constants.
 *
 *   use_cache_branch    true: a merged decoder has two decoders in one If, with a past and without;
 *                       the one with a past serves all calls, because a first call has a past
 *                       without rows
 *   num_logits_to_keep  0: logits of every row; each step says which of them are computed
 *
 * Tidying afterwards inlines the branch. In a stateless run these inputs stay inputs. */
#include "passes/rewrite.h"

#include <string.h>

static const unsigned char one_bool = 1;
static const int64_t zero = 0;

static const struct fixed {
    const char *name;
    gqac_dtype dtype;
    const void *data;
} fixed[] = {{"use_cache_branch", GQAC_BOOL, &one_bool}, {"num_logits_to_keep", GQAC_I64, &zero}};

static gqac_status fix(pass_context *context, int index, const struct fixed *f) {
    ir_graph *graph = context->module->graph;
    ir_value *input = graph->inputs[index];
    const int rank = input->type.rank;
    if (input->type.dtype != f->dtype || rank < 0 || rank > 1)
        return GQAC_OK;
    gqac_tensor tensor = {.dtype = f->dtype, .rank = rank, .dims = {1}};
    tensor.data = (void *)(uintptr_t)f->data; /* constants are only read */
    ir_value *value = ir_graph_add_constant(graph, NULL, &tensor);
    if (!value)
        return gqac_diag_oom(context->diag, "a constant");
    ir_value_replace(input, value);
    ir_graph_remove_input(graph, index);
    context->changed++;
    return GQAC_OK;
}

static gqac_status run(pass_context *context) {
    ir_graph *graph = context->module->graph;
    for (int i = graph->n_inputs - 1; i >= 0; i--)
        for (size_t k = 0; k < sizeof fixed / sizeof *fixed; k++)
            if (!strcmp(graph->inputs[i]->name, fixed[k].name)) {
                GQAC_TRY(fix(context, i, &fixed[k]));
                break;
            }
    return GQAC_OK;
}

const gqac_pass pass_defaults = {
    .name = "defaults",
    .summary = "inputs that have the same value in every sequence become constants",
    .needs = PASS_TYPED,
    .breaks = PASS_ORDERED | PASS_PLANNED,
    .retidy = true,
    .sequences = true,
    .run = run,
};
