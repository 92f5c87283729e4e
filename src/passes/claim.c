/* claim: each node gets the first kernel of the target that matches; a kernel may take further
 * nodes with it (fused_into). A composite that none takes is marked for `expand`. Starts afresh, so
 * that running it again gives the same. */
#include "passes/rewrite.h"

#include <string.h>

enum { MAX_NAMES = 256 }; /* kernels of a target; beyond, names are made again */

/* Shown names ("ref.kv_append"), made once for each kernel. */
typedef struct claimer {
    pass_context *context;
    int n;
    const target_kernel *kernels[MAX_NAMES];
    const char *names[MAX_NAMES];
} claimer;

static const char *name_of(claimer *c, const target_kernel *kernel) {
    for (int i = 0; i < c->n; i++)
        if (c->kernels[i] == kernel)
            return c->names[i];
    const char *name = gqac_arena_printf(c->context->module->arena, "%s.%s",
                                         c->context->target->name, kernel->name);
    if (name && c->n < MAX_NAMES) {
        c->kernels[c->n] = kernel;
        c->names[c->n++] = name;
    }
    return name;
}

static void take(claimer *c, ir_node *node, const target_kernel *kernel, const char *name) {
    c->context->changed +=
        node->claim != kernel || !node->kernel || strcmp(node->kernel, name) != 0;
    node->claim = kernel;
    node->kernel = name;
}

static gqac_status visit(claimer *c, ir_node *node) {
    ir_node *fused[TARGET_MAX_FUSED];
    int n_fused = 0;
    const target_kernel *kernel = target_claim(c->context->target, node, fused, &n_fused);
    const char *name = kernel ? name_of(c, kernel) : pass_to_expand;
    char op[128];
    if (!name)
        return gqac_diag_oom(c->context->diag, "a kernel's name");
    if (!kernel && !op_of(node)->expand)
        return pass_fail(node, c->context->diag, GQAC_UNSUPPORTED,
                         "target %s has no kernel for %s, and it cannot be expanded",
                         c->context->target->name, pass_op_name(node, op, sizeof op));
    take(c, node, kernel, name);
    for (int i = 0; i < n_fused; i++) {
        take(c, fused[i], kernel, name);
        fused[i]->fused_into = node;
    }
    return GQAC_OK;
}

/* From the last node to the first: the root of a pattern comes before what it takes. Recursion
 * follows nested graphs, and the verifier bounds its depth. */
static gqac_status visit_graph(claimer *c, ir_graph *graph) {
    for (ir_node *node = graph->last; node; node = node->prev) {
        ir_graph *inner;
        for (int at = 0; (inner = pass_next_graph(node, &at));)
            GQAC_TRY(visit_graph(c, inner));
        if (!node->fused_into)
            GQAC_TRY(visit(c, node));
    }
    return GQAC_OK;
}

static gqac_status forget(void *arg, ir_node *node) {
    (void)arg;
    node->fused_into = NULL;
    return GQAC_OK;
}

static gqac_status run(pass_context *context) {
    claimer c = {.context = context};
    if (!context->target)
        GQAC_FAIL(context->diag, GQAC_INTERNAL, "there is no target to claim nodes");
    GQAC_TRY(ir_graph_walk(context->module->graph, forget, NULL));
    return visit_graph(&c, context->module->graph);
}

const gqac_pass pass_claim = {
    .name = "claim",
    .summary = "the target takes the nodes it has kernels for",
    .needs = PASS_TYPED | PASS_LOWERED,
    .gives = PASS_CLAIMED,
    .run = run,
};
