/* Inlining of an If whose condition is constant. The nodes of the branch are moved before the If,
 * its constants to the enclosing graph. Names are unique in the module, so nothing is renamed. */
#include "passes/simplify.h"

#include <string.h>

#include "ops/shared.h"

static bool decided(const ir_node *node, bool *taken) {
    if (!op_is(node, "", "If") || node->n_inputs < 1)
        return false;
    const gqac_tensor *cond = pass_constant(node->inputs[0].value);
    if (!cond || cond->dtype != GQAC_BOOL || gqac_tensor_count(cond) != 1)
        return false;
    *taken = *(const unsigned char *)cond->data != 0;
    return true;
}

gqac_status simplify_if(pass_context *context, ir_node *node) {
    bool taken;
    if (!decided(node, &taken))
        return GQAC_OK;
    ir_graph *branch = ir_attr_get(node, taken ? "then_branch" : "else_branch")->graph;
    if (!branch || branch->n_inputs || branch->ret->n_inputs < node->n_outputs)
        return op_fail(node, context->diag, GQAC_INVALID_MODEL,
                       "the branch has fewer results than the If has outputs");
    if (!ir_graph_move_constants(branch, node->graph))
        return gqac_diag_oom(context->diag, "a branch");
    while (branch->first)
        ir_node_move(branch->first, node->graph, node);
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            ir_value_replace(node->outputs[i], branch->ret->inputs[i].value);
    ir_node_remove(node);
    context->changed++;
    return GQAC_OK;
}
