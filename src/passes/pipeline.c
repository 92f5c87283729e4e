/* The order of the passes. The runner goes through this list. After a pass with `retidy` that
 * changed something it runs tidy again, and a pass with `again` that changed something makes it
 * continue at that earlier pass.
 *
 *   import              the graph as the file has it, so that it can be dumped and the pipeline
 *                       stopped there
 *   infer fold simplify once each, so that each can be looked at alone
 *   tidy                the three until nothing changes
 *   defaults            inputs whose value is fixed in a sequence (not for a stateless run)
 *   raise               what a tracer wrote out -> ONNX's own ops
 *   pack                weights in the form that the target's kernels read
 *   unpad               masks of attention, where nothing is padding (not for a stateless run)
 *   lower               attention ops of every domain -> our own few
 *   stateful            past/present pairs -> sequence state (not for a stateless run)
 *   last_rows           only the wanted rows of logits are computed
 *   ragged              the new rows of all sequences -> one list without padding
 *   claim, expand       kernels take nodes; the others are expanded one level and offered again
 *   order, plan         the order of nodes, their buffers
 */
#include "passes/pass.h"

/* Applies --math exact and --per-row-quant, before anything is folded. */
static gqac_status settle(void *arg, ir_node *node) {
    pass_context *context = arg;
    if (!ir_node_complete(node))
        return gqac_diag_oom(context->diag, "a node");
    if (context->options.exact && op_of(node)->make_exact)
        op_of(node)->make_exact(node);
    const bool by_row = context->options.per_row_quant && op_of(node)->by_row;
    return by_row ? pass_by_row_node(context, node) : GQAC_OK;
}

const gqac_pass pass_import = {
    .name = "import",
    .summary = "the graph as the file has it",
    .visit = settle,
};

const gqac_pass *const gqac_pipeline[] = {
    &pass_import, &pass_infer, &pass_fold,   &pass_simplify, &pass_tidy,     &pass_defaults,
    &pass_raise,  &pass_pack,  &pass_unpad,  &pass_lower,    &pass_stateful, &pass_last_rows,
    &pass_ragged, &pass_claim, &pass_expand, &pass_order,    &pass_plan,     NULL,
};
