/* dynamic-seq: makes a graph that was exported for one token per call accept any number of tokens.
 *
 * Inputs whose token axis has length 1 get the symbol sequence_length there, and all types are
 * inferred again. Exporters write that 1 as a constant into the shapes of Reshape. If the operand
 * of a Reshape has the new symbol, the entry for it in the constant is found by comparing the dims
 * before it in the operand and in the old result. Shapes that the file computes adapt by
 * themselves, so this runs before any folding. Other ways in which the export fixed the one token
 * show in the types, or in nodes that depend on the position of a token in its call (invariance.c);
 * they are refused by name. Positions must be an input or come from the cache, because constants
 * that were computed from them cannot be recognised. */
#include "passes/insert_kv.h"

#include <string.h>

#include "ops/shared.h"

typedef struct loosener {
    pass_context *context;
    ir_graph *graph;
    const ir_dim *tokens; /* sequence_length */
    ir_type *old;         /* by ir_value.id: types for one token */
    int n_old;
} loosener;

static gqac_status short_of_memory(const loosener *s) {
    return gqac_diag_oom(s->context->diag, "dynamic shapes");
}

/* ---- inputs -------------------------------------------------------------- */

/* The axis of an input that has the tokens of a call; -1: none. In caches that axis has past rows,
 * in an encoder's states those of the encoder. */
static int token_axis(const ir_value *input) {
    const ir_type *t = &input->type;
    if (pass_is_past(input) || !strncmp(input->name, "encoder", 7) || strstr(input->name, "cache"))
        return -1;
    const bool ids = t->rank == 2 && (t->dtype == GQAC_I64 || t->dtype == GQAC_I32);
    return ids || (t->rank == 3 && !strcmp(input->name, "inputs_embeds")) ? 1 : -1;
}

static bool is_mask(const ir_value *input) {
    return strstr(input->name, "mask") != NULL;
}

static gqac_status set_axis(const loosener *s, ir_value *input, int axis, const ir_dim *dim) {
    const ir_dim *dims[GQAC_MAX_RANK];
    memcpy(dims, input->type.dims, (size_t)input->type.rank * sizeof *dims);
    dims[axis] = dim;
    input->type = ir_type_make(s->context->module, input->type.dtype, input->type.rank, dims);
    return input->type.rank < 0 ? short_of_memory(s) : GQAC_OK;
}

/* Finds the number of tokens in a call: 1; 0: any number. */
static gqac_status find_tokens(const loosener *s, int64_t *tokens) {
    *tokens = -1;
    for (int i = 0; i < s->graph->n_inputs; i++) {
        const ir_value *input = s->graph->inputs[i];
        const int axis = token_axis(input);
        int64_t n = 0;
        if (axis < 0 || is_mask(input))
            continue;
        if (!ir_dim_is_const(input->type.dims[axis], &n))
            n = 0;
        if (*tokens >= 0 && n != *tokens)
            GQAC_FAIL(s->context->diag, GQAC_UNSUPPORTED,
                      "input '%s' has a different number of tokens than the inputs before it",
                      input->name);
        *tokens = n;
    }
    gqac_diag *diag = s->context->diag;
    if (*tokens == 0 || *tokens == 1)
        return GQAC_OK;
    if (*tokens < 0)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "the model has no input of tokens [B,S]");
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "the model is exported for calls of %lld tokens",
                  (long long)*tokens);
    gqac_diag_rule(diag, "the number of tokens can be found in the graph only if it is 1");
    return GQAC_UNSUPPORTED;
}

/* A mask with one column has a column for each token; one with more columns also has those of the
 * cache. */
static gqac_status loosen_inputs(const loosener *s) {
    ir_dims *dims = s->context->module->dims;
    for (int i = 0; i < s->graph->n_inputs; i++) {
        ir_value *input = s->graph->inputs[i];
        const int axis = token_axis(input);
        int64_t n;
        if (axis < 0)
            continue;
        const bool one = ir_dim_is_const(input->type.dims[axis], &n) && n == 1;
        if (one)
            GQAC_TRY(set_axis(s, input, axis, s->tokens));
        else if (is_mask(input))
            GQAC_TRY(set_axis(s, input, axis, ir_dim_symbol(dims, "total_sequence_length")));
    }
    return GQAC_OK;
}

/* ---- types for one token ------------------------------------------------- */

static void number(loosener *s, ir_value *value) {
    if (!value || value->graph != s->graph)
        return;
    value->id = s->n_old;
    if (s->old)
        s->old[s->n_old] = value->type;
    s->n_old++;
}

static void number_all(loosener *s) {
    s->n_old = 0;
    for (int i = 0; i < s->graph->n_inputs; i++)
        number(s, s->graph->inputs[i]);
    for (int i = 0; i < s->graph->n_constants; i++)
        number(s, s->graph->constants[i]);
    for (ir_node *node = s->graph->first; node; node = node->next)
        for (int i = 0; i < node->n_outputs; i++)
            number(s, node->outputs[i]);
}

static gqac_status remember(loosener *s) {
    number_all(s);
    s->old = GQAC_ARENA_ARRAY(s->context->scratch, ir_type, (size_t)s->n_old + 1);
    if (!s->old)
        return short_of_memory(s);
    number_all(s);
    return GQAC_OK;
}

/* ---- Reshape ------------------------------------------------------------- */

typedef struct reshape {
    ir_node *node;
    ir_type in, old_in, old_out;
    int64_t shape[GQAC_MAX_RANK], n;
    int from, to; /* axes of the tokens, of operand and result; -1: not there, not found */
} reshape;

/* The one axis of the operand whose length differs from that for one token; -2: there are
 * several. */
static int changed_axis(const reshape *r) {
    int axis = -1;
    for (int i = 0; i < r->in.rank; i++)
        if (r->in.dims[i] != r->old_in.dims[i])
            axis = axis < 0 ? i : -2;
    return axis;
}

static const ir_dim *product(ir_dims *dims, const ir_type *type, int end) {
    const ir_dim *all = ir_dim_const(dims, 1);
    for (int i = 0; i < end && all; i++)
        all = type->dims[i] ? ir_dim_mul(dims, all, type->dims[i]) : NULL;
    return all;
}

static bool is_one(const ir_dim *dim) {
    int64_t n;
    return dim && ir_dim_is_const(dim, &n) && n == 1;
}

/* Finds the axis of the tokens in the result: as many elements come before it as before their axis
 * in the operand. Of several such axes of length 1 it is the one with as many axes of 1 before it
 * as in the operand; if there is none, the tokens are part of the first longer axis. */
static int find_axis(ir_dims *dims, const reshape *r) {
    const ir_dim *before = product(dims, &r->old_in, r->from);
    int ones[GQAC_MAX_RANK], n = 0, other = -1, leading = 0;
    for (int i = 0; i < r->old_out.rank && before; i++) {
        if (product(dims, &r->old_out, i) != before)
            continue;
        if (is_one(r->old_out.dims[i]))
            ones[n++] = i;
        else if (other < 0)
            other = i;
    }
    for (int i = r->from; i > 0 && is_one(r->old_in.dims[i - 1]); i--)
        leading++;
    if (is_one(before) && leading == 0 && n > 1)
        leading = 1; /* a batch of 1 was merged with the tokens */
    if (n)
        return ones[leading < n ? leading : n - 1];
    return other;
}

/* True if the constant needs no change: 0 copies the axis, -1 is inferred. */
static bool is_told(const reshape *r) {
    return r->shape[r->to] == -1 || (r->shape[r->to] == 0 && r->to == r->from);
}

static gqac_status rewrite_shape(const loosener *s, reshape *r) {
    for (int i = 0; i < r->n; i++) {
        int64_t fixed = 0;
        if (i == r->to || r->shape[i] != -1)
            continue;
        if (!ir_dim_is_const(r->old_out.dims[i], &fixed))
            return op_fail(r->node, s->context->diag, GQAC_UNSUPPORTED,
                           "axis %d of its result is of unknown length", i);
        r->shape[i] = fixed;
    }
    r->shape[r->to] = -1;
    ir_value *shape = ir_const_i64s(s->graph, NULL, r->n, r->shape);
    if (!shape)
        return short_of_memory(s);
    ir_node_set_input(r->node, 1, shape);
    s->context->changed++;
    return GQAC_OK;
}

static gqac_status loosen_reshape(const loosener *s, ir_node *node) {
    ir_value *data = ir_node_input(node, 0), *out = ir_node_output(node, 0);
    reshape r = {.node = node, .in = data->type, .old_in = s->old[data->id]};
    r.old_out = s->old[out->id];
    if (!ir_const_ints(ir_node_input(node, 1), GQAC_MAX_RANK, r.shape, &r.n) || r.in.rank < 0 ||
        r.old_in.rank != r.in.rank || r.old_out.rank != r.n)
        return GQAC_OK; /* computed from shapes, or of unknown types */
    r.from = changed_axis(&r);
    if (r.from == -1)
        return GQAC_OK;
    r.to = r.from >= 0 ? find_axis(s->context->module->dims, &r) : -1;
    if (r.to < 0)
        return op_fail(node, s->context->diag, GQAC_UNSUPPORTED,
                       "the axis of the tokens in the result of this Reshape cannot be determined");
    return is_told(&r) ? GQAC_OK : rewrite_shape(s, &r);
}

/* ---- the graph ----------------------------------------------------------- */

static gqac_status loosen_nodes(const loosener *s) {
    for (ir_node *node = s->graph->first; node; node = node->next) {
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i]) {
                node->outputs[i]->type = ir_type_unknown();
                node->outputs[i]->elements = NULL;
                node->outputs[i]->n_elements = 0;
            }
        if (op_is(node, "", "Reshape"))
            GQAC_TRY(loosen_reshape(s, node));
        GQAC_TRY(pass_infer_node(node, s->context->diag));
    }
    return GQAC_OK;
}

static bool is_causal(const ir_node *node) {
    static const char *const names[] = {"is_causal", "unidirectional", "causal", NULL};
    for (const ir_attr_spec *attr = node->op->attrs; attr && attr->name; attr++) {
        if (pass_listed(names, attr->name) && ir_attr_int(node, attr->name) == 1)
            return true;
        if (!strcmp(attr->name, "right_window_size") && ir_attr_int(node, attr->name) == 0)
            return true;
    }
    return false;
}

/* True if queries see the keys of all tokens of the call. (With one token there was no later one.)
 * Attention over an encoder's states has a length of its own. */
static bool sees_later(const loosener *s, const ir_node *node) {
    insert_operands cache;
    if (!insert_kv_takes_past(node, &cache) || is_causal(node))
        return false;
    const ir_dim *rows = insert_kv_rows(cache.n == 2 ? ir_node_input(node, 1) : NULL);
    const char *symbol = NULL;
    int64_t n;
    if (!rows)
        return true;
    return rows == s->tokens || (!ir_dim_is_const(rows, &n) && !ir_dim_is_symbol(rows, &symbol));
}

static gqac_status check_attention(const loosener *s) {
    for (const ir_node *node = s->graph->first; node; node = node->next) {
        if (!sees_later(s, node))
            continue;
        return pass_refuse(node, s->context->diag,
                           "a query of this attention would attend to keys after its own position",
                           "with several tokens a call, causality is an attribute (is_causal, "
                           "unidirectional)",
                           "export the model with causal attention");
    }
    return GQAC_OK;
}

static gqac_status check_rows(const loosener *s) {
    const ir_node **mixing = NULL;
    int n = 0;
    if (pass_check_invariance(s->context->module, s->context->scratch, &mixing, &n) != GQAC_OK)
        return short_of_memory(s);
    for (int i = 0; i < n; i++) {
        gqac_diag *diag = s->context->diag;
        if (mixing[i]->op->rows != IR_ROWS_SHAPE)
            continue;
        return pass_refuse(mixing[i], diag,
                           "this depends on the number of tokens in a call or on their positions",
                           "with several tokens a call, causality is an attribute of attention "
                           "and positions are an input, or follow from the cache",
                           "export the model for any number of tokens; if its attention is written "
                           "out in simple ops, try `gqac rewrite MODEL --pass raise` first");
    }
    return GQAC_OK;
}

static gqac_status check_results(const loosener *s) {
    for (int i = 0; i < s->graph->ret->n_inputs; i++) {
        const ir_type *t = &s->graph->ret->inputs[i].value->type;
        for (int axis = 0; axis < t->rank; axis++)
            if (t->dims[axis] == s->tokens)
                return GQAC_OK;
    }
    GQAC_FAIL(s->context->diag, GQAC_UNSUPPORTED, "no result has a row for each token");
}

static gqac_status loosen(loosener *s) {
    int64_t tokens;
    GQAC_TRY(find_tokens(s, &tokens));
    if (tokens == 0)
        return GQAC_OK;
    s->tokens = ir_dim_symbol(s->context->module->dims, "sequence_length");
    GQAC_TRY(remember(s));
    GQAC_TRY(loosen_inputs(s));
    s->context->changed++;
    GQAC_TRY(loosen_nodes(s));
    GQAC_TRY(check_results(s));
    const size_t changed = s->context->changed;
    GQAC_TRY(pass_tidy.run(s->context)); /* the form that invariance.c reads */
    s->context->changed = changed;
    GQAC_TRY(check_rows(s));
    return check_attention(s);
}

static gqac_status run(pass_context *context) {
    return loosen(&(loosener){.context = context, .graph = context->module->graph});
}

const gqac_pass pass_dynamic_seq = {
    .name = "dynamic-seq",
    .summary = "any number of tokens a call, where there was one",
    .needs = PASS_TYPED | PASS_ONNX,
    .provides = PASS_ONNX,
    .breaks = PASS_ORDERED | PASS_PLANNED,
    .run = run,
};
