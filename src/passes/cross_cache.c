/* static-cross-cache: the keys and values of an encoder's states are computed once.
 *
 * For each attention node whose keys come from inputs other than those of its query (insert_kv.c
 * finds them) there are inputs cache_k_in_i and cache_v_in_i [B,H,L,D] and results cache_k_out_i
 * and cache_v_out_i. One If serves all layers: it returns caches that have rows unchanged, and
 * computes empty ones. The branch that computes them holds all nodes that only they need, including
 * an encoder in the same graph. Attention becomes the ONNX op over the results of the If. Nothing
 * is appended, so the caches that a later call returns are those that it was given. */
#include "ops/attention.h"
#include "ops/build.h"
#include "passes/insert_kv.h"

#include <string.h>

enum { MOVED = 1, NEEDED = 2 }; /* ir_node.mark */

static gqac_status short_of_memory(const cross_caches *c) {
    return gqac_diag_oom(c->context->diag, "a cache of cross attention");
}

/* ---- taking apart -------------------------------------------------------- */

/* [B,L] of key_padding_mask as bool [B,1,1,L]. */
static ir_value *as_bool(ir_builder *b, ir_value *mask) {
    mask = op_build_cast(b, mask, GQAC_BOOL);
    return OP_BUILD(b, "Unsqueeze", .in = {mask, OP_I64S(b, 1, 2)});
}

/* A row of the mask for each query: [B,1,1,L] to [B,1,S,L]. */
static ir_value *for_each_query(ir_builder *b, ir_value *mask, ir_value *q) {
    ir_value *rows = op_build_lengths(b, q, 2, 1), *one = OP_I64S(b, 1);
    ir_value *shape =
        OP_BUILD(b, "Concat", .in = {OP_I64S(b, 1, 1), rows, one}, .ints = {{"axis", 0}});
    return OP_BUILD(b, "Expand", .in = {mask, shape});
}

/* Reads the one mask of a node; NULL: it has none. */
static gqac_status read_mask(const cross_caches *c, ir_builder *b, const ir_node *node, ir_value *q,
                             ir_value **mask) {
    char name[64];
    *mask = NULL;
    for (int i = 0; i < node->n_inputs; i++) {
        ir_value *value = node->inputs[i].value;
        if (!value || !insert_kv_is_length(node, i))
            continue;
        ir_schema_name(node->op->inputs, i, name, sizeof name);
        const bool padding = !strcmp(name, "key_padding_mask");
        const bool known = padding ? value->type.rank == 2
                                   : !strcmp(name, "attn_mask") || !strcmp(name, "attention_bias");
        if (!known || *mask)
            return op_fail(node, c->context->diag, GQAC_UNSUPPORTED,
                           "operand %s of cross attention is not supported", name);
        *mask = padding ? for_each_query(b, as_bool(b, value), q) : value;
    }
    return b->status;
}

static gqac_status take_apart(const cross_caches *c, cross_layer *l) {
    ir_node *node = l->node, *prev = node->prev;
    ir_builder b = {.graph = node->graph, .before = node, .diag = c->context->diag};
    op_parts p = {.causal = false};
    if (!op_of(node)->take_apart)
        return op_fail(node, c->context->diag, GQAC_UNSUPPORTED,
                       "this attention op cannot be split into its projections and its cache");
    op_of(node)->take_apart(&b, node, NULL, &c->context->options, &p);
    if (b.status != GQAC_OK)
        return b.status;
    if (p.causal || p.window > 0 || p.sink)
        return op_fail(
            node, c->context->diag, GQAC_UNSUPPORTED,
            "cross attention that is causal, or has a window or a sink, is not supported");
    GQAC_TRY(pass_settle(node, prev, c->context->diag));
    GQAC_TRY(insert_kv_want_rows(node, &p, c->context->diag));
    ir_node *last = node->prev;
    l->rows[0] = p.k;
    l->rows[1] = p.v;
    ir_value *mask;
    GQAC_TRY(read_mask(c, &b, node, p.q, &mask));
    ir_value *y = OP_BUILD(&b, "Attention", .in = {p.q, p.k, p.v, mask},
                           .floats = {{"scale", p.scale}, {"softcap", p.softcap}});
    l->attention = y ? y->def : NULL;
    if (node->outputs[0]->type.rank == 3)
        y = attention_flatten(&b, y);
    GQAC_TRY(b.status);
    GQAC_TRY(pass_settle(node, last, c->context->diag));
    ir_value_replace(node->outputs[0], y);
    ir_node_remove(node);
    return GQAC_OK;
}

/* ---- the branch ---------------------------------------------------------- */

/* True if the use is by attention, which will read the results of the If instead. */
static bool will_go(const cross_caches *c, const ir_use *use) {
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < 2; k++)
            if (use->node == c->layers[i].attention && use->value == c->layers[i].rows[k])
                return true;
    return false;
}

/* True if the node can move into the branch, because no other node reads it. */
static bool is_theirs(const cross_caches *c, const ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++) {
        const ir_value *value = node->outputs[i];
        for (const ir_use *use = value ? value->uses : NULL; use; use = use->next)
            if (!will_go(c, use) && (use->node == c->graph->ret ||
                                     !(ir_node_within(use->node, c->graph)->mark & MOVED)))
                return false;
    }
    return true;
}

static gqac_status need(void *arg, ir_node *node) {
    const ir_graph *main = arg;
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *value = node->inputs[i].value;
        if (value && value->def)
            ir_node_within(value->def, main)->mark |= NEEDED;
    }
    return GQAC_OK;
}

/* Marks the nodes from which the rows are computed, and those of them that nothing else needs. */
static void mark_nodes(const cross_caches *c) {
    pass_clear_marks(c->graph);
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < 2; k++)
            if (c->layers[i].rows[k]->def)
                c->layers[i].rows[k]->def->mark |= NEEDED;
    for (ir_node *node = c->graph->last; node; node = node->prev) {
        if (!(node->mark & NEEDED))
            continue;
        if (is_theirs(c, node))
            node->mark |= MOVED;
        (void)need(c->graph, node);
        ir_graph *inner;
        for (int at = 0; (inner = ir_next_graph(node, &at));)
            (void)ir_graph_walk_all(inner, need, c->graph);
    }
}

/* Fills the branch. The If is inserted before its first reader, and what the branch reads comes
 * before the If. */
static gqac_status fill_branch(const cross_caches *c, ir_graph *branch, ir_node *place) {
    ir_node *next;
    bool after = false;
    for (ir_node *node = c->graph->first; node; node = next) {
        next = node->next;
        after = after || node == place;
        if (node->mark & MOVED)
            ir_node_move(node, branch, NULL);
        else if (node->mark & NEEDED && after)
            ir_node_move(node, c->graph, place);
    }
    return GQAC_OK;
}

static gqac_status set_results(const cross_caches *c, ir_graph *branch, bool given) {
    const int n = 2 * c->n;
    ir_value **values = GQAC_ARENA_ARRAY(c->context->scratch, ir_value *, (size_t)n);
    if (!values)
        return short_of_memory(c);
    ir_builder b = {.graph = branch, .diag = c->context->diag};
    for (int i = 0; i < n; i++)
        values[i] = given ? OP_BUILD(&b, "Identity", .in = {c->layers[i / 2].in[i % 2]})
                          : c->layers[i / 2].rows[i % 2];
    if (b.status != GQAC_OK)
        return b.status;
    return ir_graph_set_results(branch, n, values, NULL) ? GQAC_OK : short_of_memory(c);
}

/* Builds the condition: the first cache has a row. */
static ir_value *is_filled(const cross_caches *c, ir_builder *b) {
    ir_value *axis = OP_I64S(b, 0);
    ir_value *rows = op_build_lengths(b, c->layers[0].in[0], 2, 1);
    rows = OP_BUILD(b, "Squeeze", .in = {rows, axis});
    return OP_BUILD(b, "Greater", .in = {rows, ir_build_i64(b, 0)});
}

static ir_node *first_reader(const cross_caches *c) {
    for (ir_node *node = c->graph->first; node; node = node->next)
        for (int i = 0; i < c->n; i++)
            if (node == c->layers[i].attention)
                return node;
    return NULL;
}

static gqac_status build_if(cross_caches *c) {
    ir_module *module = c->context->module;
    ir_builder b = {.graph = c->graph, .before = first_reader(c), .diag = c->context->diag};
    ir_graph *given = ir_graph_create(module, "cached");
    ir_graph *made = ir_graph_create(module, "computed");
    if (!given || !made)
        return short_of_memory(c);
    ir_value *filled = is_filled(c, &b);
    ir_node *choice = op_build(&b, "", "If", 1, &filled, 2 * c->n);
    if (b.status != GQAC_OK)
        return b.status;
    c->choice = choice;
    ir_attr_set_graph(choice, "then_branch", given);
    ir_attr_set_graph(choice, "else_branch", made);
    mark_nodes(c);
    GQAC_TRY(fill_branch(c, made, choice));
    GQAC_TRY(set_results(c, given, true));
    GQAC_TRY(set_results(c, made, false));
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < 2; k++) {
            cross_layer *l = &c->layers[i];
            l->out[k] = choice->outputs[2 * i + k];
            ir_node_set_input(l->attention, 1 + k, l->out[k]);
            if (!ir_value_take_name(l->out[k], l->out_names[k]))
                return short_of_memory(c);
        }
    return GQAC_OK;
}

gqac_status cross_cache_build(cross_caches *c) {
    for (int i = 0; i < c->n; i++) {
        GQAC_TRY(take_apart(c, &c->layers[i]));
        for (int k = 0; k < 2; k++) {
            const ir_type *t = &c->layers[i].rows[k]->type;
            const ir_dim *dims[4];
            memcpy(dims, t->dims, sizeof dims);
            dims[2] = ir_dim_symbol(c->context->module->dims, "cached_encoder_length");
            c->layers[i].in[k]->type = ir_type_make(c->context->module, t->dtype, 4, dims);
            if (c->layers[i].in[k]->type.rank < 0)
                return short_of_memory(c);
        }
    }
    return c->n ? build_if(c) : GQAC_OK;
}
