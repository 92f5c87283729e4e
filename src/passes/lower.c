/* lower: replaces ops that exist only in files (the attention ops of every domain) by gqac's own
 * few, with their rows' expand, for every target. The results may need lowering again; rows only
 * build simpler ops, so a few sweeps suffice. The last sweep visits all ops for --math bf16, which
 * concerns gqac's own ops. */
#include "passes/rewrite.h"

enum { MAX_LEVELS = 16 };

static gqac_status visit(void *arg, ir_node *node) {
    const pass_context *context = arg;
    if (context->options.bf16 && op_of(node)->make_bf16)
        op_of(node)->make_bf16(node);
    return node->op->flags & IR_OP_LOWER ? pass_expand_node(arg, node) : GQAC_OK;
}

static gqac_status run(pass_context *context) {
    for (int level = 0; level < MAX_LEVELS; level++) {
        const size_t before = context->changed;
        GQAC_TRY(ir_graph_walk(context->module->graph, visit, context));
        if (context->changed == before)
            return GQAC_OK;
    }
    GQAC_FAIL(context->diag, GQAC_INTERNAL, "an op is lowered to itself");
}

const gqac_pass pass_lower = {
    .name = "lower",
    .summary = "attention ops of every domain become a few ops of gqac's own",
    .needs = PASS_TYPED,
    .provides = PASS_LOWERED,
    .breaks = PASS_ONNX | PASS_CLAIMED | PASS_ORDERED | PASS_PLANNED,
    .retidy = true,
    .run = run,
};
