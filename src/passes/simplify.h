/* The parts of simplify: local rules, inlining of decided branches, common subexpressions. */
#ifndef GQAC_PASSES_SIMPLIFY_H
#define GQAC_PASSES_SIMPLIFY_H

#include "passes/rewrite.h"

/* A local rewrite of nodes of one op. `apply` returns a value that has, bit for bit, the elements
 * and shape of output 0 (then it takes its place), output 0 itself when the node was changed in
 * place, or NULL when the rule does not apply. It must not apply again to its own result. */
typedef struct simplify_rule {
    const char *name;
    const char *domain, *op;
    ir_value *(*apply)(ir_node *node);
} simplify_rule;
extern const simplify_rule simplify_rules[]; /* ends with name NULL */

/* An If whose condition is constant is replaced by the nodes of the branch it takes; `node` is
 * removed then. */
gqac_status simplify_if(pass_context *context, ir_node *node);
/* Of nodes that compute the same, and of small constants that hold the same, the first stays. */
gqac_status simplify_common(pass_context *context);

#endif
