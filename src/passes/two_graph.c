/* two-graph: splits one decoder into two graphs that use the same names for the same weights.
 *
 *   prefill  the whole prompt in one run: input_ids [B,S] -> logits of the last row [B,1,V], then
 *            kv_cache.layer.i.k and .v [B,H,S,D] of every layer
 *   decode   one token: input_ids [B,1], kv_pos [B] (rows that the caches hold), the caches
 *            kv_cache.layer.i.k and .v [B,H,max_sequence_length,D] -> logits [B,1,V], then the
 *            caches with the new row: kv_cache.layer.i.k.out and .v.out
 *
 * Attention is taken apart by its own row (take_apart) and put together as the ONNX op Attention,
 * causal, after a TensorScatter in the decode graph. Positions are row numbers or kv_pos. Prompts
 * have no padding, so the attention mask is all ones, one for each token up to the end of the
 * call. */
#include "ops/attention.h"
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/insert_kv.h"
#include "passes/stateful.h"

#include <string.h>

typedef struct splitter {
    pass_context *context;
    ir_graph *graph;
    bool decode;
    ir_builder b;
    ir_value *ids, *kv_pos, *valid; /* valid [B]: number of rows after the token was added */
    ir_value *positions;            /* i64 [B,S] */
    ir_value *ones;                 /* instead of the attention mask; NULL: there is none */
    int n_layers, n_results;
    ir_value **results;
    const char **names;
} splitter;

static gqac_status short_of_memory(const splitter *s) {
    return gqac_diag_oom(s->context->diag, "two graphs");
}

static gqac_status add_result(splitter *s, ir_value *value, const char *name) {
    if (!value || !name)
        return short_of_memory(s);
    s->results[s->n_results] = value;
    s->names[s->n_results++] = name;
    return GQAC_OK;
}

/* ---- what replaces inputs ------------------------------------------------ */

static gqac_status find_ids(splitter *s) {
    static const char *const known[] = {"input_ids", "inputs_embeds", NULL};
    for (const char *const *name = known; *name && !s->ids; name++)
        s->ids = pass_input(s->graph, *name);
    gqac_diag *diag = s->context->diag;
    if (s->ids && s->ids->type.rank >= 2)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "the model has no input input_ids [B,S]");
    gqac_diag_rule(diag,
                   "that, or inputs_embeds [B,S,M], is needed to distinguish tokens from lengths");
    return GQAC_UNSUPPORTED;
}

static ir_value *unsqueeze(ir_builder *b, ir_value *x, int64_t axis) {
    return OP_BUILD(b, "Unsqueeze", .in = {x, OP_I64S(b, axis)});
}

/* 0, 1, ... up to, but without, the one element of `end`. */
static ir_value *count_to(ir_builder *b, ir_value *end) {
    ir_value *zero = ir_build_i64(b, 0);
    end = OP_BUILD(b, "Squeeze", .in = {end, OP_I64S(b, 0)});
    return OP_BUILD(b, "Range", .in = {zero, end, ir_build_i64(b, 1)});
}

static gqac_status make_positions(splitter *s) {
    ir_builder *b = &s->b;
    if (!s->decode) {
        ir_value *row = unsqueeze(b, count_to(b, op_build_lengths(b, s->ids, 1, 1)), 0);
        ir_value *shape[2] = {op_build_lengths(b, s->ids, 0, 1), op_build_lengths(b, s->ids, 1, 1)};
        s->positions = OP_BUILD(b, "Expand", .in = {row, op_build_concat(b, 0, 2, shape)});
        return b->status;
    }
    ir_module *module = s->context->module;
    ir_type type = ir_type_make(module, GQAC_I64, 1, s->ids->type.dims);
    s->kv_pos = type.rank < 0 ? NULL : ir_graph_add_input(s->graph, "kv_pos", type);
    if (!s->kv_pos)
        return short_of_memory(s);
    s->positions = unsqueeze(b, s->kv_pos, 1);
    s->valid = OP_BUILD(b, "Add", .in = {s->kv_pos, OP_I64S(b, 1)});
    return b->status;
}

/* The largest of lengths [B], as [1]. */
static ir_value *longest(ir_builder *b, ir_value *rows) {
    return OP_BUILD(b, "ReduceMax", .in = {rows, OP_I64S(b, 0)}, .ints = {{"keepdims", 1}});
}

/* A mask of ones [B,T], from which only lengths are computed. */
static ir_value *make_mask(splitter *s, gqac_dtype dtype) {
    ir_builder *b = &s->b;
    ir_value *total = s->decode ? longest(b, s->valid) : op_build_lengths(b, s->ids, 1, 1);
    ir_value *shape[2] = {op_build_lengths(b, s->ids, 0, 1), total};
    ir_value *to = op_build_concat(b, 0, 2, shape), *one = OP_I64S(b, 1);
    ir_value *mask = OP_BUILD(b, "Expand", .in = {one, to});
    return dtype == GQAC_I64 ? mask : op_build_cast(b, mask, dtype);
}

/* Elements [start, end) of the shape of a past, whose number of rows the decode graph has as an
 * input. */
static ir_value *shape_of_past(splitter *s, const ir_node *shape, const ir_type *past) {
    ir_builder *b = &s->b;
    ir_value *parts[4];
    int n = 0, start, end;
    int64_t dim = 0;
    op_shape_range(shape, 4, &start, &end);
    for (int axis = start; axis < end; axis++) {
        if (ir_dim_is_const(past->dims[axis], &dim))
            parts[n++] = ir_build_i64s(b, 1, &dim);
        else if (axis == 0)
            parts[n++] = op_build_lengths(b, s->ids, 0, 1);
        else if (axis == 2)
            parts[n++] = s->decode ? longest(b, s->kv_pos) : OP_I64S(b, 0);
        else
            return NULL;
    }
    return n ? op_build_concat(b, 0, n, parts) : NULL;
}

/* Replaces positions that are counted from the past on; nothing else reads it then. */
static gqac_status replace_shapes(splitter *s, const ir_value *past) {
    ir_use *next, *use = past->uses;
    for (; use && past->type.rank == 4; use = next) {
        ir_node *node = use->node;
        next = use->next;
        if (!op_is(node, "", "Shape") || node->graph != s->graph)
            continue;
        s->b.before = node;
        ir_value *by = shape_of_past(s, node, &past->type);
        if (s->b.status != GQAC_OK)
            return s->b.status;
        if (by)
            ir_value_replace(node->outputs[0], by);
    }
    return GQAC_OK;
}

static gqac_status replace_inputs(splitter *s) {
    for (int i = 0; i < s->graph->n_inputs; i++)
        if (pass_is_past(s->graph->inputs[i]))
            GQAC_TRY(replace_shapes(s, s->graph->inputs[i]));
    ir_value *positions = pass_input(s->graph, "position_ids");
    if (s->ones)
        ir_value_replace(pass_input(s->graph, "attention_mask"), s->ones);
    if (positions && positions->type.rank == 2 && positions->type.dtype == GQAC_I64)
        ir_value_replace(positions, s->positions);
    return GQAC_OK;
}

/* ---- attention ----------------------------------------------------------- */

/* True where a window lets a query see a key: bool [B|1,1,S,T] of a call with T rows of keys. */
static ir_value *window_mask(splitter *s, ir_value *keys, int64_t window) {
    ir_builder *b = &s->b;
    ir_value *columns = count_to(b, op_build_lengths(b, keys, 2, 1));
    ir_value *first = OP_BUILD(b, "Sub", .in = {s->positions, ir_build_i64(b, window)});
    first = unsqueeze(b, unsqueeze(b, first, 1), 3);
    return OP_BUILD(b, "Greater", .in = {columns, first});
}

static ir_value *cached(splitter *s, ir_value *fresh, const char *name) {
    ir_module *module = s->context->module;
    const ir_dim *dims[4];
    memcpy(dims, fresh->type.dims, sizeof dims);
    dims[2] = ir_dim_symbol(module->dims, "max_sequence_length");
    const ir_type type = ir_type_make(module, fresh->type.dtype, 4, dims);
    ir_value *past = type.rank < 0 ? NULL : ir_graph_add_input(s->graph, name, type);
    if (!past) {
        s->b.status = short_of_memory(s);
        return NULL;
    }
    return OP_BUILD(&s->b, "TensorScatter", .in = {past, fresh, s->kv_pos});
}

/* Applies a sink, an additional score that has no value: y exp(l) / (exp(l) + exp(sink)) with l =
 * log sum exp of the scores [B,H,S,T]. */
static ir_value *with_sink(ir_builder *b, ir_value *y, ir_value *scores, ir_value *sink,
                           gqac_dtype dtype) {
    ir_value *sum =
        OP_BUILD(b, "ReduceLogSumExp", .in = {op_build_cast(b, scores, GQAC_F32), OP_I64S(b, 3)},
                 .ints = {{"keepdims", 1}});
    sink = OP_RESHAPE(b, sink, 1, -1, 1, 1); /* for each head */
    ir_value *rest = OP_BUILD(b, "Sub", .in = {sum, op_build_cast(b, sink, GQAC_F32)});
    ir_value *part = op_build_cast(b, OP_BUILD(b, "Sigmoid", .in = {rest}), dtype);
    return OP_BUILD(b, "Mul", .in = {y, part});
}

/* An Attention; with its scores, as the softmax takes them, in output 3. */
static ir_node *build_attention(ir_builder *b, int n, ir_value *const *in, bool scores) {
    static const char *const names[] = {"y", "", "", "scores"};
    if (!scores || b->status != GQAC_OK)
        return op_build(b, "", "Attention", n, in, 1);
    ir_node *node =
        ir_node_create(b->graph, &op_find("", "Attention")->schema, NULL, n, in, 4, names);
    if (!node) {
        b->status = gqac_diag_oom(b->diag, "an attention");
        return NULL;
    }
    ir_node_insert(node, b->before);
    ir_attr_set_int(node, "qk_matmul_output_mode", 2); /* after mask and softcap */
    return node;
}

static ir_value *attend(splitter *s, const op_parts *p, ir_value *k, ir_value *v) {
    ir_builder *b = &s->b;
    ir_value *in[7] = {p->q, k, v, NULL, NULL, NULL, s->valid};
    if (p->window > 0)
        in[3] = window_mask(s, k, p->window);
    ir_node *node = build_attention(b, s->decode ? 7 : in[3] ? 4 : 3, in, p->sink != NULL);
    if (!node)
        return NULL;
    ir_attr_set_int(node, "is_causal", 1);
    ir_attr_set_float(node, "scale", p->scale);
    ir_attr_set_float(node, "softcap", p->softcap);
    ir_value *y = ir_build_result(b, node, 0);
    return p->sink ? with_sink(b, y, node->outputs[3], p->sink, p->v->type.dtype) : y;
}

/* The keys or values of a layer, and their result. */
static gqac_status carry(splitter *s, ir_value **rows, const char *part) {
    const char *in =
        gqac_arena_printf(s->context->scratch, "kv_cache.layer.%d.%s", s->n_layers, part);
    const char *out = in && s->decode ? gqac_arena_printf(s->context->scratch, "%s.out", in) : in;
    if (!out)
        return short_of_memory(s);
    if (s->decode)
        *rows = cached(s, *rows, in);
    return s->b.status == GQAC_OK ? add_result(s, *rows, out) : s->b.status;
}

/* A padding mask hides nothing, because the attention mask is all ones. */
static bool is_padding(const ir_graph *graph, const ir_value *value, const char *name) {
    if (strcmp(name, "key_padding_mask") != 0 && strcmp(name, "mask_index") != 0)
        return false;
    while (value->def && op_is(value->def, "", "Cast"))
        value = value->def->inputs[0].value;
    return pass_is_attention_mask(graph, value);
}

static gqac_status check_masks(const splitter *s, const ir_node *node) {
    static const char *const lengths[] = {"seqlens_k", "total_sequence_length", NULL};
    const stateful asker = {.context = s->context, .graph = s->graph};
    char name[64];
    for (int i = 0; i < node->n_inputs; i++) {
        ir_value *value = node->inputs[i].value;
        ir_schema_name(node->op->inputs, i, name, sizeof name);
        if (!value || !insert_kv_is_length(node, i) || pass_listed(lengths, name))
            continue;
        bool pads = is_padding(s->graph, value, name);
        if (!pads)
            GQAC_TRY(stateful_mask_pads(&asker, value, &pads));
        if (!pads)
            return op_fail(node, s->context->diag, GQAC_UNSUPPORTED,
                           "its operand %s depends on more than the zeros of attention_mask", name);
    }
    return GQAC_OK;
}

static gqac_status split_node(splitter *s, ir_node *node) {
    op_parts p = {.causal = false};
    ir_node *prev = node->prev;
    GQAC_TRY(check_masks(s, node));
    s->b.before = node;
    op_of(node)->take_apart(&s->b, node, s->positions, &s->context->options, &p);
    if (s->b.status != GQAC_OK)
        return s->b.status;
    if (!p.causal)
        return op_fail(node, s->context->diag, GQAC_UNSUPPORTED,
                       "a query of this attention attends to keys after its own position");
    GQAC_TRY(pass_settle(node, prev, s->context->diag));
    GQAC_TRY(insert_kv_want_rows(node, &p, s->context->diag));
    ir_value *rows[2] = {p.k, p.v};
    ir_node *last = node->prev;
    GQAC_TRY(carry(s, &rows[0], "k"));
    GQAC_TRY(carry(s, &rows[1], "v"));
    ir_value *y = attend(s, &p, rows[0], rows[1]);
    if (node->outputs[0]->type.rank == 3)
        y = attention_flatten(&s->b, y);
    if (s->b.status != GQAC_OK)
        return s->b.status;
    GQAC_TRY(pass_settle(node, last, s->context->diag));
    ir_value_replace(node->outputs[0], y);
    s->n_layers++;
    s->context->changed++;
    return GQAC_OK;
}

static gqac_status nothing_found(const splitter *s) {
    gqac_diag *diag = s->context->diag;
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "the model has no attention that could have a cache");
    gqac_diag_rule(
        diag, "only GroupQueryAttention, MultiHeadAttention and Attention (ONNX) can have one");
    gqac_diag_hint(diag,
                   "`gqac inspect MODEL --ops` reports why attention in simple ops is not raised");
    return GQAC_UNSUPPORTED;
}

static gqac_status split_all(splitter *s) {
    insert_operands unused;
    ir_node *next, *node = s->graph->first;
    for (; node; node = next) {
        next = node->next;
        if (!insert_kv_takes_past(node, &unused) && !op_of(node)->take_apart)
            continue;
        if (!op_of(node)->take_apart)
            return op_fail(node, s->context->diag, GQAC_UNSUPPORTED,
                           "this attention op cannot be split into its projections and its cache");
        GQAC_TRY(split_node(s, node));
    }
    return s->n_layers ? GQAC_OK : nothing_found(s);
}

/* ---- results ------------------------------------------------------------- */

/* Sets the results: the logits first, without the presents of the model. */
static gqac_status set_results(splitter *s) {
    ir_value *logits = pass_logits(s->graph);
    if (!logits || logits->type.rank != 3)
        GQAC_FAIL(s->context->diag, GQAC_UNSUPPORTED, "the model has no output logits [B,S,V]");
    memmove(s->results + 1, s->results, (size_t)s->n_results * sizeof *s->results);
    memmove(s->names + 1, s->names, (size_t)s->n_results * sizeof *s->names);
    s->results[0] = logits;
    s->names[0] = "logits";
    return ir_graph_set_results(s->graph, s->n_results + 1, s->results, s->names)
               ? GQAC_OK
               : short_of_memory(s);
}

/* Lets the prefill graph compute the logits of the last row only. */
static gqac_status keep_last_row(splitter *s) {
    ir_use *first = pass_first_local(s->graph->ret->inputs[0].value);
    ir_use *use = first ? first : &s->graph->ret->inputs[0];
    s->b.before = first ? first->node : NULL;
    ir_value *last =
        OP_BUILD(&s->b, "Gather", .in = {use->value, OP_I64S(&s->b, -1)}, .ints = {{"axis", 1}});
    GQAC_TRY(s->b.status);
    ir_node_set_input(use->node, (int)(use - use->node->inputs), last);
    return GQAC_OK;
}

static gqac_status one_token(splitter *s) {
    ir_module *module = s->context->module;
    const ir_dim *dims[GQAC_MAX_RANK];
    memcpy(dims, s->ids->type.dims, (size_t)s->ids->type.rank * sizeof *dims);
    dims[1] = ir_dim_const(module->dims, 1);
    s->ids->type = ir_type_make(module, s->ids->type.dtype, s->ids->type.rank, dims);
    return s->ids->type.rank < 0 ? short_of_memory(s) : GQAC_OK;
}

/* Removes inputs that nothing reads any more: pasts, masks, lengths. */
static gqac_status drop_inputs(splitter *s) {
    static const char *const gone[] = {"attention_mask", "position_ids", NULL};
    pass_sweep(s->context->module);
    for (int i = s->graph->n_inputs - 1; i >= 0; i--) {
        const ir_value *input = s->graph->inputs[i];
        if (ir_value_unused(input))
            ir_graph_remove_input(s->graph, i);
        else if (pass_listed(gone, input->name) || pass_is_past(input))
            GQAC_FAIL(s->context->diag, GQAC_UNSUPPORTED,
                      "input '%s' is a mask or a state other than keys and values: two-graph does "
                      "not support it",
                      input->name);
    }
    return GQAC_OK;
}

/* The first result that the node has; any may be left out, even the first one of TopK. */
static ir_value *some_result(const ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            return node->outputs[i];
    return NULL;
}

/* True if positions are counted from the end of a past, which the decode graph has as an input: a
 * Range that begins where the past ends, or a sum over the attention mask, which is all ones
 * there. */
static bool counts_after_past(const splitter *s, ir_value *result, bool *inputs) {
    bool past = false, other = false, any = false;
    insert_kv_origins(s->graph, result, inputs);
    for (int i = 0; i < s->graph->n_inputs; i++) {
        const ir_value *input = s->graph->inputs[i];
        const bool is_past = pass_is_past(input);
        any = any || is_past;
        past = past || (inputs[i] && is_past);
        other = other || (inputs[i] && !is_past && strcmp(input->name, "attention_mask") != 0);
    }
    return (op_is(result->def, "", "Range") && past) || (any && !other);
}

/* Returns the first of `nodes` from which a result is computed; NULL: there is none. A mark is 1 +
 * the index of such a node. Masks are not followed: check_masks checks them. */
static const ir_node *reaching(const ir_graph *graph, ir_node *const *nodes, int n) {
    for (int i = 0; i < n; i++)
        nodes[i]->mark = (unsigned)i + 1;
    for (ir_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->n_inputs && !node->mark; i++) {
            const ir_value *value = node->inputs[i].value;
            if (value && value->def && !insert_kv_is_length(node, i))
                node->mark = value->def->mark;
        }
    for (int i = 0; i < graph->ret->n_inputs; i++) {
        const ir_node *def = graph->ret->inputs[i].value->def;
        if (def && def->mark)
            return nodes[def->mark - 1];
    }
    return NULL;
}

/* True if the node selects tokens by indices from NonZero, as a written-out mixture of experts does
 * for each expert. */
static bool picks_tokens(const ir_graph *graph, const ir_node *node) {
    for (ir_node *at = graph->first; at; at = at->next) {
        at->mark = op_is(at, "", "NonZero");
        for (int i = 0; i < at->n_inputs; i++) {
            const ir_value *value = at->inputs[i].value;
            at->mark |= value && value->def ? value->def->mark : 0;
        }
        if (at == node)
            return at->mark != 0;
    }
    return false;
}

/* Refuses nodes in which a token depends on other tokens of its call, except through the cache of
 * an attention, because the decode graph has only one token. (A scale for a whole tensor is
 * allowed: it depends on the call in any case.) */
static gqac_status check_rows(const splitter *s) {
    const ir_node **mixing = NULL;
    int n = 0, kept = 0;
    bool *inputs = GQAC_ARENA_ARRAY(s->context->scratch, bool, (size_t)s->graph->n_inputs + 1);
    if (!inputs ||
        pass_check_invariance(s->context->module, s->context->scratch, &mixing, &n) != GQAC_OK)
        return short_of_memory(s);
    ir_node **nodes = GQAC_ARENA_ARRAY(s->context->scratch, ir_node *, (size_t)n + 1);
    if (!nodes)
        return short_of_memory(s);
    for (int i = 0; i < n; i++) {
        ir_value *result = some_result(mixing[i]);
        if (result && mixing[i]->op->rows != IR_ROWS_MIXES && !op_of(mixing[i])->take_apart &&
            !counts_after_past(s, result, inputs))
            nodes[kept++] = result->def;
    }
    pass_clear_marks(s->graph);
    const ir_node *node = reaching(s->graph, nodes, kept);
    pass_clear_marks(s->graph);
    if (!node)
        return GQAC_OK;
    gqac_diag *diag = s->context->diag;
    const bool picks = picks_tokens(s->graph, node);
    pass_clear_marks(s->graph);
    if (picks) {
        return pass_refuse(
            node, diag,
            "it selects tokens by their values (NonZero), as a written-out mixture of experts "
            "does: gqac cannot prove that tokens do not affect each other",
            "in a graph for one token, other tokens are accessible only through the caches of its "
            "attention",
            "export the mixture as the op MoE, or with every expert on every "
            "token (mobius)");
    }
    return pass_refuse(node, diag,
                       "this depends on the number of tokens in a call, on their positions or on "
                       "other tokens of the call",
                       "in a graph for one token, other tokens are accessible only through the "
                       "caches of its attention, and the position must be an input",
                       "export the model with position_ids, or run `gqac rewrite MODEL --pass "
                       "insert-kv` first: it makes counted positions an input");
}

static gqac_status split(splitter *s) {
    GQAC_TRY(find_ids(s));
    GQAC_TRY(check_rows(s));
    s->b = (ir_builder){.graph = s->graph, .before = s->graph->first, .diag = s->context->diag};
    int most = 1;
    for (const ir_node *node = s->graph->first; node; node = node->next)
        most += 2;
    s->results = GQAC_ARENA_ARRAY(s->context->scratch, ir_value *, (size_t)most);
    s->names = GQAC_ARENA_ARRAY(s->context->scratch, const char *, (size_t)most);
    if (!s->results || !s->names)
        return short_of_memory(s);
    ir_node *old = s->graph->first;
    GQAC_TRY(make_positions(s));
    const ir_value *mask = pass_input(s->graph, "attention_mask");
    if (mask)
        s->ones = make_mask(s, mask->type.dtype);
    if (s->b.status != GQAC_OK)
        return s->b.status;
    GQAC_TRY(pass_settle(old, NULL, s->context->diag));
    GQAC_TRY(split_all(s));
    GQAC_TRY(set_results(s));
    return s->decode ? one_token(s) : keep_last_row(s);
}

static gqac_status run_as(pass_context *context, bool decode) {
    splitter s = {.context = context, .graph = context->module->graph, .decode = decode};
    GQAC_TRY(split(&s));
    GQAC_TRY(replace_inputs(&s));
    GQAC_TRY(drop_inputs(&s));
    return pass_infer_again(s.graph, context->diag);
}

static gqac_status run_prefill(pass_context *context) {
    return run_as(context, false);
}

static gqac_status run_decode(pass_context *context) {
    return run_as(context, true);
}

const gqac_pass pass_prefill = {
    .name = "prefill",
    .summary = "the graph of a whole prompt, which returns keys and values",
    .needs = PASS_TYPED | PASS_ONNX,
    .provides = PASS_ONNX,
    .breaks = PASS_ORDERED | PASS_PLANNED,
    .run = run_prefill,
};

const gqac_pass pass_decode = {
    .name = "decode",
    .summary = "the graph of one token after caches, to which it writes",
    .needs = PASS_TYPED | PASS_ONNX,
    .provides = PASS_ONNX,
    .breaks = PASS_ORDERED | PASS_PLANNED,
    .run = run_decode,
};
