/* claim: each node gets the first kernel of the target that matches it; a kernel may claim further
 * nodes with it (fused_into). A composite that no kernel claims is marked for `expand`. Earlier
 * claims are cleared first, so a second run has the same result.
 *
 * A group runs at the position of its root. If a node outside reads a result of a fused node, the
 * nodes of the group are moved together, and nodes between them that depend on the result (*late*
 * nodes) are moved after the root. ir_node.mark is TARGET_CLAIMED and, in the bits above it, the
 * number of the group for which the node is late. If the group itself depends on a late node, it
 * cannot be moved, and the next kernel is tried. */
#include "passes/rewrite.h"

#include <string.h>

#include "ops/shared.h"

enum {
    MAX_NAMES = 256, /* kernels of a target whose names are kept */
    WINDOW = 4096,   /* maximum number of nodes between those of a group */
    ROUNDS = 16,     /* maximum rounds of the search for late nodes */
};

/* Shown names ("ref.kv_append"), made once for each kernel. */
typedef struct claimer {
    pass_context *context;
    int n;
    const target_kernel *kernels[MAX_NAMES];
    const char *names[MAX_NAMES];
    unsigned groups;
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
    node->mark = TARGET_CLAIMED;
}

/* ---- the place of a group ------------------------------------------------ */

typedef struct group {
    ir_node *root, *first; /* first: the group's first node in the graph */
    ir_node **nodes;       /* besides the root */
    int n;
    unsigned number;
} group;

static bool is_member(const group *g, const ir_node *node) {
    bool is = node == g->root;
    for (int i = 0; i < g->n; i++)
        is |= node == g->nodes[i];
    return is;
}

/* True if all nodes are unclaimed and before the root; sets group.first. */
static bool find_first(group *g) {
    int found = 0, looked = 0;
    for (int i = 0; i < g->n; i++)
        if (g->nodes[i]->fused_into || g->nodes[i]->mark & TARGET_CLAIMED)
            return false;
    for (ir_node *n = g->root->prev; n && found < g->n && looked < WINDOW; n = n->prev, looked++)
        if (is_member(g, n)) {
            g->first = n;
            found++;
        }
    return found == g->n;
}

/* True if a node outside the group reads a result of a fused node. */
static bool is_open(const group *g) {
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < g->nodes[i]->n_outputs; k++) {
            const ir_value *value = g->nodes[i]->outputs[k];
            for (const ir_use *use = value ? value->uses : NULL; use; use = use->next)
                if (!is_member(g, ir_node_within(use->node, g->root->graph)))
                    return true;
        }
    return false;
}

static bool is_late(const group *g, const ir_node *node) {
    return ir_node_root(node)->mark >> 1 == g->number;
}

/* Marks the readers of a node's results as late; false if the group itself reads one. Of a group
 * that was claimed before, all nodes become late. */
static bool spread(const group *g, const ir_node *node, bool *changed) {
    const bool member = is_member(g, node);
    for (int i = 0; i < node->n_outputs; i++) {
        const ir_value *value = node->outputs[i];
        for (const ir_use *use = value ? value->uses : NULL; use; use = use->next) {
            const ir_node *reader = ir_node_within(use->node, g->root->graph);
            ir_node *root = ir_node_root(reader);
            if (is_member(g, reader)) {
                if (!member)
                    return false;
            } else if (root->mark >> 1 != g->number) {
                root->mark = (root->mark & TARGET_CLAIMED) | g->number << 1;
                *changed = true;
            }
        }
    }
    return true;
}

static bool find_late(const group *g) {
    for (int round = 0; round < ROUNDS; round++) {
        bool changed = false;
        for (const ir_node *n = g->first; n != g->root; n = n->next)
            if ((is_member(g, n) || is_late(g, n)) && !spread(g, n, &changed))
                return false;
        if (!changed)
            return true;
    }
    return false;
}

/* Moves late nodes after the root, and the other nodes between those of the group before the group.
 * Returns the node that followed the root: the walk, which goes backwards, continues before that
 * node, so that it visits the late nodes. */
static ir_node *gather(const group *g) {
    ir_node *next, *const after = g->root->next;
    for (ir_node *n = g->first; n != g->root; n = next) {
        next = n->next;
        if (!is_member(g, n))
            ir_node_move(n, n->graph, is_late(g, n) ? after : g->first);
    }
    return after;
}

/* ---- the walk ------------------------------------------------------------ */

/* Chooses the kernel of a node, and its group. The walk continues before *done (NULL: at the last
 * node). */
static const target_kernel *choose(claimer *c, group *g, ir_node **done) {
    const gqac_target *target = c->context->target;
    const target_kernel *kernel = NULL;
    *done = g->root;
    while ((kernel = target_claim(target, kernel, g->root, g->nodes, &g->n)) && g->n) {
        g->number = ++c->groups;
        if (!find_first(g))
            continue;
        if (!is_open(g))
            break;
        if (find_late(g)) {
            *done = gather(g);
            break;
        }
    }
    return kernel;
}

static gqac_status visit(claimer *c, ir_node *node, ir_node **done) {
    ir_node *fused[TARGET_MAX_FUSED];
    group g = {.root = node, .nodes = fused};
    const target_kernel *kernel = choose(c, &g, done);
    const char *name = kernel ? name_of(c, kernel) : pass_to_expand;
    char op[128];
    GQAC_TRY(gqac_poll_check(c->context->poll, c->context->diag));
    if (!name)
        return gqac_diag_oom(c->context->diag, "a kernel's name");
    if (!kernel && !op_of(node)->expand)
        return op_fail(node, c->context->diag, GQAC_UNSUPPORTED,
                       "target %s has no kernel for %s, and it cannot be expanded",
                       c->context->target->name, ir_node_op_name(node, op, sizeof op));
    take(c, node, kernel, name);
    for (int i = 0; i < g.n; i++) {
        take(c, fused[i], kernel, name);
        fused[i]->fused_into = node;
    }
    return GQAC_OK;
}

/* Visits nodes from the last to the first, so that the root of a pattern comes before the nodes
 * that it claims. Recursion follows nested graphs, whose depth the verifier limits. */
static gqac_status visit_graph(claimer *c, ir_graph *graph) {
    ir_node *node = graph->last;
    while (node) {
        ir_graph *inner;
        ir_node *done = node;
        for (int at = 0; !(node->mark & TARGET_CLAIMED) && (inner = ir_next_graph(node, &at));)
            GQAC_TRY(visit_graph(c, inner));
        if (!(node->mark & TARGET_CLAIMED))
            GQAC_TRY(visit(c, node, &done));
        node = done ? done->prev : graph->last;
    }
    return GQAC_OK;
}

static gqac_status forget(void *arg, ir_node *node) {
    (void)arg;
    node->fused_into = NULL;
    node->mark = 0;
    return GQAC_OK;
}

static gqac_status run(pass_context *context) {
    claimer c = {.context = context};
    if (!context->target)
        GQAC_FAIL(context->diag, GQAC_INTERNAL, "claim needs a target, but none is set");
    GQAC_TRY(ir_graph_walk_all(context->module->graph, forget, NULL));
    return visit_graph(&c, context->module->graph);
}

const gqac_pass pass_claim = {
    .name = "claim",
    .summary = "the target claims the nodes for which it has kernels",
    .needs = PASS_TYPED | PASS_LOWERED,
    .provides = PASS_CLAIMED,
    .run = run,
};
