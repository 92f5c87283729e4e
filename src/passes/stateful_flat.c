/* Caches [B,T,H*D] that TensorScatter writes: heads are split after the buffer. A sequence keeps
 * heads apart, so they are split before it: the rows that are written, and the graph input. */
#include <string.h>

#include "ops/build.h"
#include "passes/stateful.h"

static bool along_rows(const ir_node *node) {
    const int64_t axis = ir_attr_int(node, "axis");
    return axis == 1 || axis == -2;
}

/* Heads that every reader of a cache splits it into; 0 when one does something else with it. */
static int64_t heads_of(const ir_value *cache) {
    int64_t heads = 0;
    for (const ir_use *use = cache->uses; use; use = use->next) {
        if (use->node == cache->graph->ret)
            continue;
        const int64_t own =
            op_is(use->node, "gqac", "split_heads") && ir_attr_int(use->node, "kv") == 0
                ? ir_attr_int(use->node, "q")
                : 0;
        if (!own || (heads && own != heads))
            return 0;
        heads = own;
    }
    return heads;
}

/* The TensorScatter that is the only reader of the past. */
static ir_node *scatter_of(const ir_value *past) {
    ir_node *node = past->uses ? past->uses->node : NULL;
    return node && !past->uses->next && op_is(node, "", "TensorScatter") &&
                   node->graph == past->graph && node->inputs[0].value == past &&
                   past->type.rank == 3 && along_rows(node)
               ? node
               : NULL;
}

static gqac_status unfold(stateful *s, ir_value *past, ir_node *scatter, int64_t heads) {
    gqac_diag *diag = s->context->diag;
    ir_dims *dims = s->context->module->dims;
    const ir_dim *n = ir_dim_const(dims, heads), *const *old = past->type.dims;
    const ir_dim *size = ir_dim_div_exact(dims, old[2], n);
    const ir_dim *shape[] = {old[0], n, old[1], size};
    const ir_type type = ir_type_make(s->context->module, past->type.dtype, 4, shape);
    ir_value *cache = scatter->outputs[0];
    if (!size)
        return GQAC_OK; /* stateful reports that it is not a cache */
    if (type.rank < 0)
        return gqac_diag_oom(diag, "KV state");
    ir_builder b = {.graph = s->graph, .before = scatter, .diag = diag};
    ir_node *prev = scatter->prev;
    ir_value *rows =
        OP_BUILD(&b, "split_heads", .in = {ir_node_input(scatter, 1)}, .ints = {{"q", heads}});
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(scatter, prev, diag));
    past->type = type;
    ir_node_set_input(scatter, 1, rows);
    ir_attr_set_int(scatter, "axis", 2);
    GQAC_TRY(pass_infer_node(scatter, diag));
    for (ir_use *use = cache->uses, *next; use; use = next) {
        next = use->next;
        if (use->node != s->graph->ret)
            ir_value_replace(use->node->outputs[0], cache);
    }
    s->context->changed++;
    return GQAC_OK;
}

gqac_status stateful_unfold(stateful *s) {
    for (int i = 0; i < s->graph->n_inputs; i++) {
        ir_node *scatter = scatter_of(s->graph->inputs[i]);
        const int64_t heads = scatter ? heads_of(scatter->outputs[0]) : 0;
        if (heads)
            GQAC_TRY(unfold(s, s->graph->inputs[i], scatter, heads));
    }
    pass_sweep(s->context->module);
    return GQAC_OK;
}
