/* insert-kv: adds a KV cache to a decoder that was exported without one.
 *
 * Every attention node of the main graph whose op has operands for a past takes part, in the order
 * of the file. Layer i gets graph inputs cache_k_in_i and cache_v_in_i and results cache_k_out_i
 * and cache_v_out_i after the existing ones (cache_in_i and cache_out_i where an op has keys and
 * values in one tensor), and its mask gets columns for the cached rows. With empty caches the graph
 * computes the same as before.
 *
 * The result is checked: no query may see keys after its own position, and no node may mix the rows
 * of one call (invariance.c). So a graph that computes causality or positions in a way that is not
 * known is refused, by the name of the node. Attention over an encoder's states gets caches that
 * are computed once (cross_cache.c); the rewrite static-cross-cache does only that. Attention
 * within an encoder does not change.
 */
#include "passes/insert_kv.h"

#include <string.h>

#include "ops/shared.h"

/* ---- what an op can take ------------------------------------------------- */

bool insert_kv_takes_past(const ir_node *node, insert_operands *p) {
    static const char *const names[2][2] = {{"past_key", "present_key"},
                                            {"past_value", "present_value"}};
    const ir_schema *op = node->op;
    if (!(op->flags & IR_OP_LOWER) || op->rows != IR_ROWS_STATE)
        return false;
    for (p->n = 0; p->n < 2; p->n++) {
        p->past[p->n] = ir_schema_index(op->inputs, names[p->n][0]);
        p->present[p->n] = ir_schema_index(op->outputs, names[p->n][1]);
        if (p->past[p->n] < 0 || p->present[p->n] < 0)
            break;
    }
    if (p->n == 2)
        return true;
    p->n = 1;
    p->past[0] = ir_schema_index(op->inputs, "past");
    p->present[0] = ir_schema_index(op->outputs, "present");
    return p->past[0] >= 0 && p->present[0] >= 0;
}

/* ---- what a value is computed from --------------------------------------- */

enum { SEEN = INSERT_DATA }; /* ir_node.mark */

static void see(const ir_graph *main, ir_value *value, bool *inputs) {
    if (!value || value->constant)
        return;
    if (value->def) {
        ir_node *within = ir_node_within(value->def, main);
        if (within)
            within->mark |= SEEN;
        return;
    }
    for (int i = 0; i < main->n_inputs; i++)
        inputs[i] = inputs[i] || main->inputs[i] == value;
}

typedef struct looker {
    const ir_graph *main;
    bool *inputs;
    bool data; /* ignore paths through masks and lengths of attention */
} looker;

static const char *const lengths[] = {"attn_mask",  "attention_bias", "key_padding_mask",
                                      "mask_index", "seqlens_k",      "total_sequence_length",
                                      NULL};

bool insert_kv_is_length(const ir_node *node, int operand) {
    insert_operands unused;
    char name[64];
    ir_schema_name(node->op->inputs, operand, name, sizeof name);
    return pass_listed(lengths, name) && insert_kv_takes_past(node, &unused);
}

gqac_status insert_kv_want_rows(const ir_node *node, const op_parts *parts, gqac_diag *diag) {
    if (parts->k->type.rank == 4 && parts->v->type.rank == 4)
        return GQAC_OK;
    return pass_refuse(node, diag, "the shape of its keys and values is not known",
                       "keys and values of a cache must have the shape [B,H,S,D]",
                       "export the model with the shapes of its inputs");
}

static gqac_status see_operands(void *arg, ir_node *node) {
    const looker *l = arg;
    for (int i = 0; i < node->n_inputs; i++)
        if (!l->data || !insert_kv_is_length(node, i))
            see(l->main, node->inputs[i].value, l->inputs);
    return GQAC_OK;
}

/* Marks backwards from the nodes that are marked. */
static void look_back(looker *l) {
    for (ir_node *node = l->main->last; node; node = node->prev) {
        if (!(node->mark & SEEN))
            continue;
        (void)see_operands(l, node);
        ir_graph *inner;
        for (int at = 0; (inner = ir_next_graph(node, &at));)
            (void)ir_graph_walk_all(inner, see_operands, l);
    }
}

void insert_kv_origins(ir_graph *main, ir_value *value, bool *inputs) {
    looker l = {main, inputs, false};
    pass_clear_marks(main);
    memset(inputs, 0, (size_t)main->n_inputs * sizeof *inputs);
    see(main, value, inputs);
    look_back(&l);
}

/* ---- the layers ---------------------------------------------------------- */

/* For each layer the whole graph is visited, and a flag for each graph input is kept. */
enum { MOST_LAYERS = 2048 };

typedef struct layer {
    ir_node *node;
    insert_operands cache;
    bool *keys; /* graph inputs that its keys are computed from */
    insert_slopes slopes;
    bool cross; /* the query is computed from other inputs and has rows of its own */
} layer;

typedef struct inserter {
    pass_context *context;
    ir_graph *graph;
    layer *layers;
    int n_layers, n_cached, n_inputs; /* n_inputs: of the original model */
    const ir_dim *past;               /* rows of every past */
    bool *encoder; /* graph inputs that keys of cross attention are computed from */
    cross_caches cross;
} inserter;

static gqac_status short_of_memory(const inserter *s) {
    return gqac_diag_oom(s->context->diag, "a KV cache");
}

const ir_dim *insert_kv_rows(const ir_value *value) {
    const int rank = value ? value->type.rank : -1;
    return rank == 3 || rank == 4 ? value->type.dims[rank - 2] : NULL;
}

/* True if static-cross-cache has made its keys. */
static bool has_cross_cache(const ir_node *node, const insert_operands *cache) {
    const ir_value *key = cache->n == 2 ? ir_node_input(node, 1) : NULL;
    bool result = false;
    for (const ir_use *use = key ? key->uses : NULL; use; use = use->next)
        result = result || use->node == node->graph->ret;
    return result && key->def && ir_holds_graphs(key->def);
}

static gqac_status collect(inserter *s, bool all) {
    const size_t n_inputs = (size_t)s->graph->n_inputs;
    bool *query = GQAC_ARENA_ARRAY(s->context->scratch, bool, n_inputs + 1);
    size_t nodes = 0;
    for (const ir_node *node = s->graph->first; node; node = node->next)
        nodes++;
    s->layers = GQAC_ARENA_ARRAY(s->context->scratch, layer, nodes + 1);
    s->n_inputs = s->graph->n_inputs;
    s->encoder = GQAC_ARENA_ARRAY(s->context->scratch, bool, n_inputs + 1);
    if (!query || !s->layers || !s->encoder)
        return short_of_memory(s);
    for (ir_node *node = s->graph->first; node; node = node->next) {
        layer *l = &s->layers[s->n_layers];
        if (!insert_kv_takes_past(node, &l->cache))
            continue;
        if (s->n_layers == MOST_LAYERS)
            GQAC_FAIL(s->context->diag, GQAC_LIMIT, "the model has more than %d nodes of attention",
                      MOST_LAYERS);
        GQAC_TRY(gqac_poll_check(s->context->poll, s->context->diag));
        ir_value *key = ir_node_input(node, 1);
        const bool packed = l->cache.n == 1 || !key;
        const bool crosses = has_cross_cache(node, &l->cache);
        if (crosses || ir_node_input(node, l->cache.past[0])) {
            s->n_cached += crosses || all;
            continue;
        }
        l->node = node;
        l->keys = GQAC_ARENA_ARRAY(s->context->scratch, bool, n_inputs + 1);
        if (!l->keys)
            return short_of_memory(s);
        insert_kv_origins(s->graph, ir_node_input(node, 0), query);
        insert_kv_origins(s->graph, packed ? ir_node_input(node, 0) : key, l->keys);
        l->cross = memcmp(query, l->keys, n_inputs * sizeof *query) != 0 &&
                   insert_kv_rows(ir_node_input(node, 0)) != insert_kv_rows(packed ? NULL : key);
        for (size_t i = 0; i < n_inputs; i++)
            s->encoder[i] = s->encoder[i] || (l->cross && l->keys[i]);
        s->n_layers++;
    }
    return GQAC_OK;
}

/* True for attention within an encoder: its keys are computed from the same inputs as those of
 * cross attention. */
static bool is_encoder(const inserter *s, const layer *l) {
    bool within = !l->cross;
    for (int i = 0; i < s->graph->n_inputs; i++)
        within = within && (!l->keys[i] || s->encoder[i]);
    return within;
}

/* ---- masks --------------------------------------------------------------- */

/* Marks the nodes from which results are computed, and finds the graph inputs among their sources;
 * data: ignores paths through masks and lengths of attention. */
static void find_used(const inserter *s, bool data, bool *inputs) {
    looker l = {s->graph, inputs, data};
    pass_clear_marks(s->graph);
    memset(inputs, 0, (size_t)s->graph->n_inputs * sizeof *inputs);
    (void)see_operands(&l, s->graph->ret);
    look_back(&l);
}

/* Finds the graph inputs from which only masks and lengths of attention are computed. An attention
 * mask that nothing reads counts too, because callers continue to pass it. */
static gqac_status find_masks(const inserter *s, ir_value *ids, bool *masks) {
    const int n = s->graph->n_inputs;
    bool *inputs = GQAC_ARENA_ARRAY(s->context->scratch, bool, (size_t)n + 1);
    if (!inputs)
        return short_of_memory(s);
    for (int i = 0; i < s->n_layers; i++) {
        const ir_node *node = s->layers[i].node;
        for (int k = 0; k < node->n_inputs; k++) {
            if (!insert_kv_is_length(node, k))
                continue;
            insert_kv_origins(s->graph, node->inputs[k].value, inputs);
            for (int j = 0; j < n; j++)
                masks[j] = masks[j] || (inputs[j] && s->graph->inputs[j] != ids);
        }
    }
    find_used(s, true, inputs);
    if (ids)
        GQAC_TRY(insert_lengths(s->graph, ids, masks, s->context->diag));
    find_used(s, false, inputs);
    for (int j = 0; j < n; j++)
        if (!inputs[j] && pass_is_attention_mask(s->graph, s->graph->inputs[j]))
            masks[j] = true;
    find_used(s, true, inputs);
    for (int j = 0; j < n; j++) {
        if (masks[j] && inputs[j] && pass_is_attention_mask(s->graph, s->graph->inputs[j]))
            GQAC_TRY(insert_kv_want_mask(s->graph, s->graph->inputs[j], s->context->diag));
        masks[j] = masks[j] && !inputs[j];
    }
    return GQAC_OK;
}

/* Gives a mask, on its last axis, a column for each key. */
static gqac_status widen(inserter *s, ir_value *mask, const ir_dim *rows) {
    ir_module *module = s->context->module;
    const ir_dim *dims[GQAC_MAX_RANK];
    const int last = mask->type.rank - 1;
    if (last < 0 || mask->type.dims[last] != rows)
        return GQAC_OK;
    memcpy(dims, mask->type.dims, (size_t)mask->type.rank * sizeof *dims);
    dims[last] = ir_dim_add(module->dims, s->past, rows);
    mask->type = ir_type_make(module, mask->type.dtype, mask->type.rank, dims);
    return mask->type.rank < 0 ? short_of_memory(s) : GQAC_OK;
}

/* ---- adding -------------------------------------------------------------- */

/* Replaces a node by the same node with another list of outputs. */
static ir_node *with_outputs(ir_node *old, int n_outputs, const char *const *names) {
    ir_value *in[INSERT_MOST_OPERANDS];
    for (int i = 0; i < old->n_inputs; i++)
        in[i] = old->inputs[i].value;
    ir_node *node =
        ir_node_create(old->graph, old->op, old->name, old->n_inputs, in, n_outputs, names);
    if (!node)
        return NULL;
    for (size_t i = 0; old->op->attrs && old->op->attrs[i].name; i++)
        node->attrs[i] = old->attrs[i];
    ir_node_insert(node, old);
    for (int i = 0; i < old->n_outputs; i++) {
        ir_value *value = old->outputs[i];
        if (!value)
            continue;
        node->outputs[i]->type = value->type;
        ir_value_replace(value, node->outputs[i]);
        if (!ir_value_take_name(node->outputs[i], value->name))
            return NULL;
    }
    ir_node_remove(old);
    return node;
}

static const char *name_of(const inserter *s, const layer *l, int index, int part, bool out) {
    static const char *const parts[] = {"k_", "v_"};
    return gqac_arena_printf(s->context->scratch, "cache_%s%s_%d",
                             l->cache.n == 2 ? parts[part] : "", out ? "out" : "in", index);
}

/* Adds the present outputs to the layer's node, with their types. */
static gqac_status want_presents(inserter *s, layer *l, int index) {
    const char *names[INSERT_MOST_OPERANDS] = {NULL};
    int n = l->node->n_outputs;
    for (int i = 0; i < INSERT_MOST_OPERANDS; i++)
        names[i] = i < n && l->node->outputs[i] ? "y" : "";
    for (int i = 0; i < l->cache.n; i++) {
        const int at = l->cache.present[i];
        names[at] = name_of(s, l, index, i, true);
        n = n > at + 1 ? n : at + 1;
        if (!names[at])
            return short_of_memory(s);
    }
    l->node = with_outputs(l->node, n, names);
    return l->node ? op_infer(l->node, s->context->diag) : short_of_memory(s);
}

static gqac_status add_input(inserter *s, const char *name, ir_type type, ir_value **input) {
    *input = name && type.rank >= 0 ? ir_graph_add_input(s->graph, name, type) : NULL;
    if (!*input)
        return short_of_memory(s);
    if (strcmp((*input)->name, name) != 0)
        GQAC_FAIL(s->context->diag, GQAC_UNSUPPORTED, "the model already has the name '%s'", name);
    return GQAC_OK;
}

/* Adds the caches of cross attention; their types are set when the node is taken apart. */
static gqac_status add_cross(inserter *s, const layer *l, int index) {
    cross_layer *c = &s->cross.layers[s->cross.n++];
    c->node = l->node;
    for (int k = 0; k < 2; k++) {
        const ir_type open = ir_type_make(s->context->module, GQAC_NONE, 0, NULL);
        GQAC_TRY(add_input(s, name_of(s, l, index, k, false), open, &c->in[k]));
        c->out_names[k] = name_of(s, l, index, k, true);
        if (!c->out_names[k])
            return short_of_memory(s);
    }
    return GQAC_OK;
}

/* Adds the past inputs: like the present, but with their own number of rows. */
static gqac_status add_pasts(inserter *s, layer *l, int index) {
    ir_value *in[INSERT_MOST_OPERANDS] = {NULL};
    ir_node *node = l->node;
    int n = node->n_inputs;
    for (int i = 0; i < n; i++)
        in[i] = node->inputs[i].value;
    for (int i = 0; i < l->cache.n; i++) {
        const ir_type *t = &node->outputs[l->cache.present[i]]->type;
        const ir_dim *dims[GQAC_MAX_RANK];
        const char *name = name_of(s, l, index, i, false);
        const int at = l->cache.past[i], rows = t->rank - 2;
        if (t->rank < 4)
            return op_fail(node, s->context->diag, GQAC_UNSUPPORTED,
                           "the shape of its keys and values is not known");
        memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
        dims[rows] = s->past;
        ir_type type = ir_type_make(s->context->module, t->dtype, t->rank, dims);
        GQAC_TRY(add_input(s, name, type, &in[at]));
        n = n > at + 1 ? n : at + 1;
    }
    return ir_node_set_inputs(node, n, in) ? GQAC_OK : short_of_memory(s);
}

/* Adds the results of the caches after those of the model. */
static gqac_status add_results(inserter *s) {
    pass_results r;
    if (!pass_copy_results(s->context, 2 * s->n_layers, &r))
        return short_of_memory(s);
    for (int i = 0, cross = 0; i < s->n_layers; i++) {
        const layer *l = &s->layers[i];
        for (int k = 0; k < l->cache.n; k++, r.n++) {
            r.values[r.n] =
                l->cross ? s->cross.layers[cross].out[k] : l->node->outputs[l->cache.present[k]];
            r.names[r.n] = r.values[r.n]->name;
        }
        cross += l->cross;
    }
    return ir_graph_set_results(s->graph, r.n, r.values, r.names) ? GQAC_OK : short_of_memory(s);
}

/* ---- afterwards ---------------------------------------------------------- */

/* True for attention over an encoder's states, or within the encoder. */
static bool is_across(const inserter *s, const ir_node *node, bool *inputs) {
    const ir_node *within = ir_node_within(node, s->graph);
    for (int i = 0; i < s->cross.n; i++)
        if (within == s->cross.layers[i].attention)
            return true;
    insert_kv_origins(s->graph, within->outputs[0], inputs);
    for (int i = 0; i < s->graph->n_inputs && within != s->cross.choice; i++)
        if (inputs[i] && !s->encoder[i])
            return false;
    return true;
}

/* Checks that nothing mixes rows. Ops that do so by what they compute (such as a scale for a whole
 * tensor) did so before and are allowed. */
static gqac_status check_rows(inserter *s) {
    const ir_node **mixing = NULL;
    int n = 0;
    const size_t n_inputs = (size_t)s->graph->n_inputs;
    bool *inputs = GQAC_ARENA_ARRAY(s->context->scratch, bool, n_inputs + 1);
    bool *encoder = GQAC_ARENA_ARRAY(s->context->scratch, bool, n_inputs + 1);
    if (!inputs || !encoder)
        return short_of_memory(s);
    memcpy(encoder, s->encoder, (size_t)s->n_inputs * sizeof *encoder);
    s->encoder = encoder;
    if (pass_check_invariance(s->context->module, s->context->scratch, &mixing, &n) != GQAC_OK)
        return short_of_memory(s);
    for (int i = 0; i < n; i++) {
        if (mixing[i]->op->rows == IR_ROWS_MIXES || is_across(s, mixing[i], inputs))
            continue;
        const bool attention = mixing[i]->op->rows == IR_ROWS_STATE;
        op_fail(mixing[i], s->context->diag, GQAC_UNSUPPORTED, "%s",
                attention ? "a query of this attention attends to keys after its own position, or "
                            "only the mask hides them"
                          : "this depends on the number of tokens in a call or on their positions");
        gqac_diag_rule(s->context->diag,
                       "with a cache, causality is an attribute (is_causal, unidirectional) and "
                       "positions are an input");
        gqac_diag_hint(s->context->diag, "export the model with position_ids, or with its cache");
        return GQAC_UNSUPPORTED;
    }
    return GQAC_OK;
}

static gqac_status add_self(inserter *s, layer *l, int index) {
    int64_t fixed;
    GQAC_TRY(want_presents(s, l, index));
    const ir_type *t = &l->node->outputs[l->cache.present[0]]->type;
    if (t->rank < 4 || !ir_dim_is_const(t->dims[t->rank - 2], &fixed))
        return add_pasts(s, l, index);
    op_fail(l->node, s->context->diag, GQAC_UNSUPPORTED,
            "the model is exported for calls of %lld tokens", (long long)fixed);
    gqac_diag_hint(s->context->diag, "run `gqac rewrite MODEL --pass dynamic-seq` first");
    return GQAC_UNSUPPORTED;
}

/* The first input that keys of self-attention are computed from: [B,S] or [B,S,M]. */
static ir_value *find_tokens(const inserter *s) {
    for (int i = 0; i < s->n_layers; i++)
        for (int k = 0; k < s->n_inputs && !s->layers[i].cross; k++)
            if (s->layers[i].keys[k] && s->graph->inputs[k]->type.rank >= 2)
                return s->graph->inputs[k];
    return NULL;
}

/* Reads linear biases from masks and removes the nodes that made them. */
static gqac_status take_slopes(inserter *s) {
    int steps = RAISE_STEPS;
    for (int i = 0; i < s->n_layers; i++)
        if (!s->layers[i].cross)
            GQAC_TRY(
                insert_slopes_take(s->context, &steps, s->layers[i].node, &s->layers[i].slopes));
    pass_sweep(s->context->module);
    return GQAC_OK;
}

static gqac_status put_slopes(inserter *s) {
    insert_slopes last = {.made = NULL};
    for (int i = 0; i < s->n_layers; i++)
        if (s->layers[i].slopes.heads)
            GQAC_TRY(insert_slopes_put(s->context, s->layers[i].node, &s->layers[i].slopes, &last));
    return GQAC_OK;
}

static gqac_status insert(inserter *s) {
    ir_module *module = s->context->module;
    ir_value *tokens = find_tokens(s);
    s->cross = (cross_caches){
        .context = s->context,
        .graph = s->graph,
        .layers = GQAC_ARENA_ARRAY(s->context->scratch, cross_layer, (size_t)s->n_layers)};
    s->past = ir_dim_fresh(module->dims, "past_sequence_length");
    GQAC_TRY(take_slopes(s));
    bool *inputs = GQAC_ARENA_ARRAY(s->context->scratch, bool, (size_t)s->graph->n_inputs + 1);
    if (!inputs)
        return short_of_memory(s);
    find_used(s, true, inputs);
    if (tokens)
        GQAC_TRY(insert_positions(s->context, tokens->type.dims[0], tokens->type.dims[1]));
    const int n_inputs = s->graph->n_inputs;
    bool *masks = GQAC_ARENA_ARRAY(s->context->scratch, bool, (size_t)n_inputs + 1);
    if (!masks || !s->cross.layers)
        return short_of_memory(s);
    GQAC_TRY(find_masks(s, tokens, masks));
    for (int i = 0; i < s->n_layers; i++) {
        layer *l = &s->layers[i];
        GQAC_TRY(l->cross ? add_cross(s, l, i) : add_self(s, l, i));
        s->context->changed++;
    }
    for (int i = 0; i < n_inputs && tokens; i++)
        if (masks[i])
            GQAC_TRY(widen(s, s->graph->inputs[i], tokens->type.dims[1]));
    GQAC_TRY(cross_cache_build(&s->cross));
    GQAC_TRY(add_results(s));
    return pass_infer_again(s->graph, s->context->diag);
}

/* Fails because there is no attention; reports what prevented raising, if something looks like
 * attention. */
static gqac_status nothing_found(const inserter *s, const char *what) {
    gqac_diag *diag = s->context->diag;
    const pass_note *note = s->context->notes;
    const ir_node *softmax = s->graph->first;
    while (note && (!note->why || strcmp(note->what, "Attention") != 0))
        note = note->next;
    while (softmax && !op_is(softmax, "", "Softmax"))
        softmax = softmax->next;
    if (note)
        gqac_diag_set(diag, GQAC_UNSUPPORTED,
                      "the model has no %s: the pattern that ends at '%s' is not raised because of "
                      "node '%s' (%s): %s",
                      what, note->node, note->stop, note->op, note->why);
    else if (softmax)
        gqac_diag_set(diag, GQAC_UNSUPPORTED,
                      "the model has no %s: the nodes around '%s' (Softmax) match no known pattern",
                      what, ir_node_label(softmax));
    else
        gqac_diag_set(diag, GQAC_UNSUPPORTED, "the model has no %s", what);
    gqac_diag_rule(diag, "GroupQueryAttention, MultiHeadAttention and Attention have operands for "
                         "a past");
    gqac_diag_hint(diag,
                   "`gqac inspect MODEL --ops` reports why attention in simple ops is not raised");
    return GQAC_UNSUPPORTED;
}

static gqac_status run_in(inserter *s, bool all) {
    GQAC_TRY(collect(s, all));
    int n = 0;
    for (int i = 0; i < s->n_layers; i++)
        if (s->layers[i].cross || (all && !is_encoder(s, &s->layers[i])))
            s->layers[n++] = s->layers[i];
    s->n_layers = n;
    if (!n && s->n_cached)
        return GQAC_OK;
    if (!n)
        return nothing_found(s, all ? "attention that could have a cache"
                                    : "attention over the states of an encoder");
    GQAC_TRY(insert(s));
    if (!all)
        return GQAC_OK;
    GQAC_TRY(check_rows(s));
    GQAC_TRY(put_slopes(s));
    return insert_windows(s->graph, s->context->diag);
}

static gqac_status run_with(pass_context *context, bool all) {
    return run_in(&(inserter){.context = context, .graph = context->module->graph}, all);
}

static gqac_status run_all(pass_context *context) {
    return run_with(context, true);
}

static gqac_status run_cross(pass_context *context) {
    return run_with(context, false);
}

const gqac_pass pass_insert_kv = {
    .name = "insert-kv",
    .summary = "past and present for attention that has none",
    .needs = PASS_TYPED | PASS_ONNX,
    .provides = PASS_ONNX,
    .breaks = PASS_ORDERED | PASS_PLANNED,
    .run = run_all,
};

const gqac_pass pass_static_cross_cache = {
    .name = "static-cross-cache",
    .summary = "keys and values of an encoder's states are computed once",
    .needs = PASS_TYPED | PASS_ONNX,
    .provides = PASS_ONNX,
    .breaks = PASS_ORDERED | PASS_PLANNED,
    .run = run_cross,
};
