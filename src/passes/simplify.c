/* simplify: local rewrites that change no bit of any result. Rules are rows of a table
 * (simplify_rules.c); nodes are visited in order, operands before users, so that one sweep
 * collapses chains. Then Ifs with constant conditions are inlined, and equal nodes are merged. The
 * sweep removes values without uses. */
#include "passes/simplify.h"

#include <string.h>

enum { MAX_REWRITES = 8 }; /* maximum for one node in one sweep */

/* True if a rule was applied, so that another may apply. */
static bool apply_one(pass_context *context, ir_node *node) {
    ir_value *result = ir_node_output(node, 0);
    for (const simplify_rule *rule = simplify_rules; rule->name; rule++) {
        if (!result || ir_value_unused(result) || !op_is(node, rule->domain, rule->op))
            continue;
        ir_value *by = rule->apply(node);
        if (!by)
            continue;
        context->changed++;
        if (by == result)
            return true;
        ir_value_replace(result, by);
        return false;
    }
    return false;
}

static gqac_status visit(void *arg, ir_node *node) {
    pass_context *context = arg;
    for (int i = 0; i < MAX_REWRITES && apply_one(context, node); i++)
        ;
    return simplify_if(context, node);
}

static gqac_status run(pass_context *context) {
    GQAC_TRY(ir_graph_walk(context->module->graph, visit, context));
    pass_sweep(context->module);
    return simplify_common(context);
}

const gqac_pass pass_simplify = {
    .name = "simplify",
    .summary = "local rewrites that keep every bit, common subexpressions (part of tidy)",
    .needs = PASS_TYPED,
    .breaks = PASS_ORDERED | PASS_PLANNED,
    .run = run,
};
