/* expand: replaces every composite that `claim` marked for it by what its own row builds, one level
 * deep. The types of the new nodes are inferred at once and checked against those of the outputs
 * that they replace. New nodes keep the name of the node that they replace, so that messages still
 * refer to the file. */
#include "passes/rewrite.h"

#include <string.h>

#include "ops/shared.h"

const char pass_to_expand[] = "expand";

gqac_status pass_settle(const ir_node *node, ir_node *prev, gqac_diag *diag) {
    for (ir_node *n = prev ? prev->next : node->graph->first; n != node; n = n->next) {
        if (!n->name)
            n->name = node->name;
        if (op_of(n)->verify) /* attributes that come from types of a hostile graph */
            GQAC_TRY(op_of(n)->verify(n, diag));
        GQAC_TRY(pass_infer_node(n, diag));
    }
    return GQAC_OK;
}

static gqac_status take_over(pass_context *context, const ir_node *node, ir_value *const *results) {
    for (int i = 0; i < node->n_outputs; i++) {
        ir_value *old = node->outputs[i], *by = results[i];
        if (!old || ir_value_unused(old))
            continue;
        if (!by)
            return op_fail(node, context->diag, GQAC_INTERNAL,
                           "the expansion has no value for output %d", i);
        const bool dtype = old->type.dtype == GQAC_NONE || by->type.dtype == GQAC_NONE ||
                           old->type.dtype == by->type.dtype;
        const bool rank =
            old->type.rank < 0 || by->type.rank < 0 || old->type.rank == by->type.rank;
        if (!dtype || !rank)
            return op_fail(node, context->diag, GQAC_INTERNAL,
                           "the expansion has a different type for output %d: %s of rank %d, not "
                           "%s of rank %d",
                           i, gqac_dtype_name(by->type.dtype), by->type.rank,
                           gqac_dtype_name(old->type.dtype), old->type.rank);
        ir_value_replace(old, by);
    }
    return GQAC_OK;
}

static bool expand_by_row(ir_builder *b, ir_node *node, const pass_context *context,
                          ir_value **results) {
    op_of(node)->expand(b, node, &context->options, results);
    return true;
}

static bool standardise_by_row(ir_builder *b, ir_node *node, const pass_context *context,
                               ir_value **results) {
    (void)context;
    return op_of(node)->standard(b, node, results);
}

static bool quantise_by_row(ir_builder *b, ir_node *node, const pass_context *context,
                            ir_value **results) {
    (void)context;
    op_of(node)->by_row(b, node, results);
    return true;
}

/* Replaces the node by what `build` makes before it, unless that returns false. */
static gqac_status replace_node(pass_context *context, ir_node *node,
                                bool (*build)(ir_builder *, ir_node *, const pass_context *,
                                              ir_value **)) {
    ir_value **results =
        GQAC_ARENA_ARRAY(context->module->arena, ir_value *, (size_t)node->n_outputs);
    if (!results)
        return gqac_diag_oom(context->diag, "an expansion");
    ir_builder b = {.graph = node->graph, .before = node, .diag = context->diag};
    ir_node *prev = node->prev;
    if (!build(&b, node, context, results))
        return GQAC_OK;
    if (b.status != GQAC_OK) {
        if (context->diag && !context->diag->where[0])
            ir_node_where(node, context->diag);
        return b.status;
    }
    GQAC_TRY(pass_settle(node, prev, context->diag));
    GQAC_TRY(take_over(context, node, results));
    ir_node_remove(node);
    context->changed++;
    return GQAC_OK;
}

gqac_status pass_by_row_node(pass_context *context, ir_node *node) {
    return replace_node(context, node, quantise_by_row);
}

gqac_status pass_expand_node(pass_context *context, ir_node *node) {
    char name[128];
    if (!op_of(node)->expand)
        return op_fail(node, context->diag, GQAC_UNSUPPORTED,
                       "target %s has no kernel for %s, and it cannot be expanded",
                       context->target ? context->target->name : "?",
                       ir_node_op_name(node, name, sizeof name));
    return replace_node(context, node, expand_by_row);
}

static gqac_status standardise_node(void *arg, ir_node *node) {
    return op_of(node)->standard ? replace_node(arg, node, standardise_by_row) : GQAC_OK;
}

/* The nodes that replace a node may have a standard form themselves. */
gqac_status pass_standardise(pass_context *context) {
    size_t before;
    do {
        before = context->changed;
        GQAC_TRY(ir_graph_walk(context->module->graph, standardise_node, context));
    } while (context->changed != before);
    return GQAC_OK;
}

static gqac_status visit(void *arg, ir_node *node) {
    const bool wanted = node->kernel && strcmp(node->kernel, pass_to_expand) == 0;
    return wanted ? pass_expand_node(arg, node) : GQAC_OK;
}

const gqac_pass pass_expand = {
    .name = "expand",
    .summary = "nodes that no kernel claimed become simpler ops, one level",
    .needs = PASS_TYPED | PASS_LOWERED,
    .breaks = PASS_ONNX | PASS_CLAIMED | PASS_ORDERED | PASS_PLANNED,
    .retidy = true,
    .again = &pass_claim,
    .visit = visit,
};
