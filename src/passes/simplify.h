/* The parts of simplify: local rules, inlining of branches, common subexpressions. */
#ifndef GQAC_PASSES_SIMPLIFY_H
#define GQAC_PASSES_SIMPLIFY_H

#include "passes/rewrite.h"

/* A local rewrite of nodes of one op. `apply` returns a value with the shape and, bit for bit, the
 * elements of output 0, which replaces it; or output 0 itself if the node was changed in place; or
 * NULL if the rule does not apply. A rule must not apply to its own result. */
typedef struct simplify_rule {
    const char *name;
    const char *domain, *op;
    ir_value *(*apply)(ir_node *node);
} simplify_rule;
extern const simplify_rule simplify_rules[]; /* ends with name NULL */

/* Replaces an If with a constant condition by the nodes of the chosen branch; `node` is then
 * removed. */
gqac_status simplify_if(pass_context *context, ir_node *node);
/* Merges nodes that compute the same, and small equal constants; the first one stays. */
gqac_status simplify_common(pass_context *context);

#endif
