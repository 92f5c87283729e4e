/* stateful: past/present pairs become sequence state.
 *
 * A pair is a graph input that is the past of a concat_past_present whose output is a graph result.
 * The caches of stateful_family.c, the convolutions of stateful_conv.c and the recurrences of
 * stateful_recurrent.c form pairs too. Slot i of the state belongs to the i-th such input. The
 * concat becomes kv_state (the token of the slot) and kv_append (which writes the new rows and
 * returns all rows). Input and result are removed, and the last token becomes the result "state.i",
 * so that appends are never dead. Lengths come from the run time: see stateful_lengths.c. */
#include "passes/stateful.h"

#include "ops/build.h"
#include "ops/shared.h"

static bool is_concat(const ir_node *node) {
    return op_is(node, "gqac", "concat_past_present");
}

/* ---- finding pairs ------------------------------------------------------- */

static const char *result_name(const ir_graph *graph, const ir_value *value) {
    for (const ir_use *use = value->uses; use; use = use->next)
        if (use->node == graph->ret)
            return graph->result_names[use - graph->ret->inputs];
    return NULL;
}

/* The node whose past is a graph input and whose output is a result. */
static ir_node *concat_of(const ir_graph *graph, const ir_value *past) {
    for (const ir_use *use = past->uses; use; use = use->next) {
        ir_node *node = use->node;
        const bool own = is_concat(node) && ir_node_operand(node, "past") == past;
        if (node->graph == graph && (own || stateful_is_cache(node, past)) &&
            result_name(graph, node->outputs[0]))
            return node;
        if (node->graph == graph &&
            (stateful_is_conv(node, past) || stateful_is_recurrent(node, past)))
            return node;
    }
    return NULL;
}

static struct stateful_pair pair_of(const ir_graph *graph, ir_value *past, ir_node *node) {
    struct stateful_pair pair = {.past = past, .concat = node};
    if (stateful_is_conv(node, past))
        pair.kind = STATEFUL_CONV;
    else if (stateful_is_recurrent(node, past))
        pair.kind = STATEFUL_RECURRENT;
    pair.present = result_name(graph, node->outputs[pair.kind != STATEFUL_ROWS]);
    return pair;
}

static gqac_status find_pairs(stateful *s) {
    const ir_graph *graph = s->graph;
    s->pairs =
        GQAC_ARENA_ARRAY(s->context->scratch, struct stateful_pair, (size_t)graph->n_inputs + 1);
    if (!s->pairs)
        return gqac_diag_oom(s->context->diag, "past/present pairs");
    for (int i = 0; i < graph->n_inputs; i++) {
        ir_node *concat = concat_of(graph, graph->inputs[i]);
        graph->inputs[i]->id = concat ? STATEFUL_PAST : 0;
        if (concat)
            s->pairs[s->n_pairs++] = pair_of(graph, graph->inputs[i], concat);
    }
    return GQAC_OK;
}

/* Handles layers without keys of their own, which read those of another layer: they append
 * nothing. */
static void share_caches(stateful *s) {
    for (ir_node *node = s->graph->first, *next; node; node = next) {
        next = node->next;
        int64_t rows;
        ir_value *past = is_concat(node) ? ir_node_operand(node, "past") : NULL;
        const ir_value *fresh = past ? stateful_fresh(node) : NULL;
        if (!past || !past->def || !is_concat(past->def) || fresh->type.rank != 4 ||
            !ir_dim_is_const(fresh->type.dims[2], &rows) || rows != 0)
            continue;
        ir_value_replace(node->outputs[0], past);
        ir_node_remove(node);
        s->context->changed++;
    }
}

/* The node that writes new rows into a past, used as a buffer; NULL: there is none. */
static const ir_node *writer_of(const ir_value *past) {
    for (const ir_use *use = past->uses; use; use = use->next) {
        const ir_node *node = use->node;
        if (op_is(node, "", "Transpose") && node->outputs[0]->uses)
            node = node->outputs[0]->uses->node;
        if (op_is(node, "", "ScatterND") || op_is(node, "", "ScatterElements"))
            return node;
    }
    return NULL;
}

/* Fails if the past is a buffer whose rows are written in a way that raise_written.c does not
 * know, or is cast. */
static gqac_status check_readers(const stateful *s, const ir_value *past) {
    gqac_diag *diag = s->context->diag;
    GQAC_TRY(stateful_check_casts(s, past));
    const ir_node *writer = writer_of(past);
    if (!writer)
        return GQAC_OK;
    op_fail(writer, diag, GQAC_UNSUPPORTED,
            "the KV cache '%s' is written or read in a way that sequences do not support",
            past->name);
    gqac_diag_rule(diag, "new rows must be written at consecutive positions that start at a graph "
                         "input (cache_position), and causal attention must read the buffer");
    gqac_diag_hint(diag, "export the model with a cache that grows (DynamicCache); `gqac run` runs "
                         "the graph as exported");
    return GQAC_UNSUPPORTED;
}

static gqac_status no_pairs(const stateful *s) {
    gqac_diag *diag = s->context->diag;
    for (int i = 0; i < s->graph->n_inputs; i++)
        GQAC_TRY(check_readers(s, s->graph->inputs[i]));
    kv_slot *slots;
    int named = 0;
    if (pass_find_kv_pairs(s->context->module, s->context->scratch, &slots, &named) != GQAC_OK)
        return gqac_diag_oom(diag, "past/present pairs");
    if (!named)
        gqac_diag_set(diag, GQAC_UNSUPPORTED, "the model has no KV cache");
    else
        gqac_diag_set(diag, GQAC_UNSUPPORTED,
                      "the KV cache of the model ('%s', one of %d) is not read by an attention op",
                      slots[0].past, named);
    gqac_diag_rule(
        diag, "a sequence needs past/present pairs of GroupQueryAttention or another attention op");
    gqac_diag_hint(diag, !named
                             ? "`gqac rewrite MODEL --pass insert-kv` adds one, or names the node "
                               "that prevents it; score and generate work without one with --kv off"
                             : "`gqac inspect MODEL --ops` reports why attention in simple ops is "
                               "not raised; `gqac run` runs the graph as exported");
    return GQAC_UNSUPPORTED;
}

/* Checks that every past belongs to a pair; otherwise results would be silently wrong. */
static gqac_status check_complete(const stateful *s) {
    const ir_graph *graph = s->graph;
    for (int i = 0; i < graph->n_inputs; i++) {
        const ir_value *input = graph->inputs[i];
        if (input->id == STATEFUL_PAST || !pass_is_past(input))
            continue;
        GQAC_TRY(check_readers(s, input));
        GQAC_FAIL(
            s->context->diag, GQAC_UNSUPPORTED,
            "input '%s' is not a KV cache that an attention op reads and returns as a graph output",
            input->name);
    }
    return GQAC_OK;
}

static gqac_status check_none_left(void *arg, ir_node *node) {
    if (!is_concat(node))
        return GQAC_OK;
    return op_fail(node, arg, GQAC_UNSUPPORTED,
                   "keys and values of this attention are not a past/present pair of the graph");
}

/* ---- pairs to state ------------------------------------------------------ */

static gqac_status read_shape(const stateful *s, const struct stateful_pair *pair,
                              const ir_value *fresh, int axis, int64_t *dim) {
    if (pair->past->type.rank == 4 && ir_dim_is_const(pair->past->type.dims[axis], dim))
        return GQAC_OK;
    if (fresh && fresh->type.rank == 4 && ir_dim_is_const(fresh->type.dims[axis], dim))
        return GQAC_OK;
    return op_fail(pair->concat, s->context->diag, GQAC_UNSUPPORTED,
                   "the %s of input '%s' is not constant",
                   axis == 1   ? "heads"
                   : axis == 2 ? "rows"
                               : "head size",
                   pair->past->name);
}

/* A state of a slot, whose rows are like `fresh`. */
static gqac_status build_state(const stateful *s, int slot, const ir_value *fresh, ir_builder *b,
                               ir_value **state) {
    const struct stateful_pair *pair = &s->pairs[slot];
    const bool recurrent = pair->kind == STATEFUL_RECURRENT;
    int64_t heads, size, rows = 0;
    if (!recurrent && fresh && fresh->type.rank == 4 &&
        ir_dim_is_const(fresh->type.dims[2], &rows) && rows == 0)
        return op_fail(pair->concat, s->context->diag, GQAC_UNSUPPORTED,
                       "keys and values of zero length (a layer that shares the cache of another "
                       "one) are not supported");
    GQAC_TRY(read_shape(s, pair, fresh, 1, &heads));
    GQAC_TRY(read_shape(s, pair, fresh, 3, &size));
    if (recurrent)
        GQAC_TRY(read_shape(s, pair, fresh, 2, &rows));
    *state = OP_BUILD(b, "kv_state",
                      .ints = {{"slot", slot},
                               {"heads", heads},
                               {"head_size", size},
                               {"rows", recurrent ? rows : 0}},
                      .dtype = {"dtype", pair->past->type.dtype},
                      .text = {{"past", pair->past->name}, {"present", pair->present}});
    GQAC_TRY(b->status);
    (*state)->def->name = pair->concat->name;
    return op_infer((*state)->def, b->diag);
}

/* A recurrence changes its state in place: no rows, no lengths. */
static gqac_status make_recurrent(stateful *s, int slot, ir_builder *b, ir_value **token) {
    ir_node *node = s->pairs[slot].concat;
    ir_value *state;
    GQAC_TRY(build_state(s, slot, node->outputs[1], b, &state));
    s->context->changed++;
    return stateful_recurrent_join(b, node, state, token);
}

/* Builds the state of a slot and returns its last token. */
static gqac_status make_state(stateful *s, int slot, ir_value **token) {
    const struct stateful_pair *pair = &s->pairs[slot];
    gqac_diag *diag = s->context->diag;
    ir_builder b = {.graph = s->graph, .before = pair->concat, .diag = diag};
    ir_value *fresh;
    if (pair->kind == STATEFUL_RECURRENT)
        return make_recurrent(s, slot, &b, token);
    if (pair->kind == STATEFUL_CONV)
        GQAC_TRY(stateful_conv_rows(&b, pair->concat, &fresh));
    else
        fresh = stateful_fresh(pair->concat);
    ir_value *state, *rows;
    GQAC_TRY(build_state(s, slot, fresh, &b, &state));
    OP_BUILD(&b, "kv_append", .in = {state, fresh, s->past_len, s->new_len},
             .ints = {{"slot", slot}}, .out = {token, &rows});
    GQAC_TRY(b.status);
    rows->def->name = pair->concat->name;
    GQAC_TRY(op_infer(rows->def, diag));
    s->context->changed++;
    if (pair->kind == STATEFUL_CONV)
        return stateful_conv_join(&b, pair->concat, rows, s->past_len);
    ir_value_replace(pair->concat->outputs[0], rows);
    ir_node_remove(pair->concat);
    return GQAC_OK;
}

/* Sets the results: those that are not presents, then the tokens. */
static gqac_status set_results(stateful *s, ir_value *const *tokens) {
    pass_results r;
    int n = 0;
    bool ok = pass_copy_results(s->context, s->n_pairs, &r);
    for (int i = 0; ok && i < r.n; i++) {
        const ir_value *value = r.values[i];
        if (value->type.dtype == GQAC_TOKEN ||
            (value->def && op_is(value->def, "gqac", "kv_append")))
            continue;
        r.values[n] = r.values[i];
        r.names[n++] = r.names[i];
    }
    for (int i = 0; ok && i < s->n_pairs; i++) {
        r.values[n] = tokens[i];
        r.names[n] = gqac_arena_printf(s->context->scratch, "state.%d", i);
        ok = r.names[n++] != NULL;
    }
    if (!ok || !ir_graph_set_results(s->graph, n, r.values, r.names))
        return gqac_diag_oom(s->context->diag, "results");
    return GQAC_OK;
}

static gqac_status convert(stateful *s) {
    stateful_uncast(s);
    GQAC_TRY(pass_unjoin(s->context));
    GQAC_TRY(stateful_unfold(s));
    GQAC_TRY(find_pairs(s));
    if (!s->n_pairs)
        return no_pairs(s);
    share_caches(s);
    GQAC_TRY(check_complete(s));
    GQAC_TRY(stateful_lengths(s));
    GQAC_TRY(stateful_masks(s));
    GQAC_TRY(stateful_ranges(s));
    ir_value **tokens = GQAC_ARENA_ARRAY(s->context->scratch, ir_value *, (size_t)s->n_pairs);
    if (!tokens)
        return gqac_diag_oom(s->context->diag, "KV state");
    for (int i = 0; i < s->n_pairs; i++)
        GQAC_TRY(make_state(s, i, &tokens[i]));
    GQAC_TRY(set_results(s, tokens));
    pass_sweep(s->context->module);
    GQAC_TRY(ir_graph_walk(s->graph, check_none_left, s->context->diag));
    GQAC_TRY(stateful_shapes(s));
    return stateful_inputs(s);
}

static bool has_state(const ir_graph *graph) {
    for (const ir_node *node = graph->first; node; node = node->next)
        if (op_is(node, "gqac", "kv_state"))
            return true;
    return false;
}

static gqac_status run(pass_context *context) {
    stateful s = {.context = context, .graph = context->module->graph};
    if (has_state(s.graph))
        return GQAC_OK; /* it ran before */
    return convert(&s);
}

const gqac_pass pass_stateful = {
    .name = "stateful",
    .summary = "past/present pairs become sequence state",
    .needs = PASS_TYPED | PASS_LOWERED,
    .provides = PASS_STATEFUL,
    .breaks = PASS_ONNX | PASS_CLAIMED | PASS_ORDERED | PASS_PLANNED,
    .retidy = true,
    .sequences = true,
    .run = run,
};
