/* ragged: packs the new rows of all sequences of a step into one list. Token ids become [1,N],
 * where N is the sum of gqac.new_len [n]. Nodes that compute each row by itself do not see
 * sequences or padding. Nodes that reach other rows through the cache find the rows of a sequence
 * by the lengths (ops/attention.h):
 *
 *   kv_append, attention, recurrent_attention   as they are; gathered rows are [n,H,T,D]
 *   attend                                      gets gqac.new_len as an operand
 *   rotary                                      gets the position of each row
 *   CausalConvWithState                         becomes causal_conv, which has gqac.new_len
 *
 * If a node mixes rows, or reads lengths, caches or the shape of a call in a way that is not known
 * here, the graph does not change, and the run time pads rows to the longest sequence. That node is
 * pass_context.padded_by. */
#include "ops/build.h"
#include "ops/rotary.h"
#include "passes/rewrite.h"

#include <string.h>

typedef struct ragged {
    pass_context *context;
    ir_graph *graph;
    ir_value *ids, *past_len, *new_len, *positions; /* positions: i64 [B,S]; NULL: none yet */
    const ir_dim *batch, *length;                   /* of ids */
} ragged;

/* ---- may rows be packed? ------------------------------------------------- */

static bool is_own(const ir_node *node, const char *name) {
    return op_is(node, "gqac", name);
}

static bool is_conv(const ir_node *node) {
    return op_is(node, "", "CausalConvWithState") ||
           op_is(node, "com.microsoft", "CausalConvWithState");
}

/* A convolution whose state is that of a sequence. */
static bool has_tail(const ir_node *node) {
    const ir_value *state = is_conv(node) ? ir_node_operand(node, "past_state") : NULL;
    return state && state->def && is_own(state->def, "kv_tail");
}

/* Rows of the caches of all sequences, [n,H,T,D], or a value made from them. */
static bool is_cache(const ir_value *value) {
    const ir_node *node = value ? value->def : NULL;
    if (node && is_own(node, "kv_dequantise"))
        node = ir_node_input(node, 0)->def;
    return node && is_own(node, "kv_append") && value->result == (value->def == node);
}

static bool reads(const ir_node *node, const char *operand, const ir_use *use) {
    return use->value == ir_node_operand(node, operand);
}

/* True if this operand may be the cached rows of all sequences. */
static bool takes_cache(const ir_node *node, const ir_use *use) {
    if (is_own(node, "attention") || is_own(node, "attend"))
        return !reads(node, "q", use) && (reads(node, "k", use) || reads(node, "v", use));
    if (is_own(node, "key_range"))
        return reads(node, "k", use) && !reads(node, "q", use);
    if (is_own(node, "key_bias"))
        return reads(node, "k", use);
    return is_own(node, "kv_dequantise") || is_own(node, "kv_tail");
}

static bool takes_lengths(const ir_node *node) {
    static const char *const names[] = {"attention", "kv_append", "rotary",
                                        "key_range", "kv_tail",   NULL};
    return node->op->domain && !strcmp(node->op->domain, "gqac") &&
           pass_listed(names, node->op->name);
}

/* A mask or bias has a row for each query on its last axis but one, or one for all. */
static bool fits_rows(const ir_value *mask) {
    int64_t n;
    if (!mask || mask->type.rank == 4)
        return true;
    return mask->type.rank == 1 ||
           (mask->type.rank > 1 && ir_dim_is_const(mask->type.dims[mask->type.rank - 2], &n) &&
            n == 1);
}

/* Attention of new rows over a cache whose scores are not returned. */
static bool fits_attention(const ir_node *node) {
    const ir_value *shown = ir_node_output(node, 1);
    if ((shown && !ir_value_unused(shown)) || !is_cache(ir_node_operand(node, "k")) ||
        !is_cache(ir_node_operand(node, "v")))
        return false;
    if (is_own(node, "attention"))
        return fits_rows(ir_node_operand(node, "bias"));
    const ir_value *lo = ir_node_operand(node, "lo");
    return lo && lo->def && is_own(lo->def, "key_range") && ir_node_operand(lo->def, "new_len") &&
           fits_rows(ir_node_operand(node, "mask"));
}

typedef struct mention {
    const ragged *r;
    bool found;
} mention;

static bool look_up(void *arg, const char *symbol, int64_t *value) {
    mention *m = arg;
    const char *name;
    *value = 1;
    m->found |= ir_dim_is_symbol(m->r->length, &name) && !strcmp(name, symbol);
    m->found |= ir_dim_is_symbol(m->r->batch, &name) && !strcmp(name, symbol);
    return true;
}

/* Numbers of all rows, as indices into tables that have a row for each of them:
 * MRotaryEmbedding. */
static bool numbers_tables(const ir_value *numbers) {
    for (const ir_use *use = numbers->uses; use; use = use->next) {
        const ir_node *shaped = use->node;
        if (!op_is(shaped, "", "Reshape"))
            return false;
        for (const ir_use *place = shaped->outputs[0]->uses; place; place = place->next) {
            const ir_value *table = ir_node_operand(place->node, "cos");
            if (!is_own(place->node, "rotary") || !reads(place->node, "position_ids", place) ||
                table->constant || table->type.rank != 2 ||
                table->type.dims[0] != numbers->type.dims[0])
                return false;
        }
    }
    return true;
}

/* Numbers that count along the axes of a call. */
static bool counts_rows(const ragged *r, const ir_node *node) {
    const ir_value *y = ir_node_output(node, 0);
    if (!op_is(node, "", "Range"))
        return false;
    const ir_dim *n = y && y->type.rank == 1 ? y->type.dims[0] : NULL;
    mention m = {.r = r};
    int64_t value;
    if (n && numbers_tables(y))
        return false;
    return !n || !ir_dim_eval(n, look_up, &m, &value) || m.found;
}

/* Arithmetic with shapes or with row numbers for tables, which does not read rows of a call. */
static bool computes_shapes(const ir_node *node) {
    const ir_value *y = ir_node_output(node, 0);
    return y && (y->elements || (op_is(node, "", "Range") && numbers_tables(y)));
}

static bool fits(const ragged *r, const ir_node *node) {
    if ((is_own(node, "attention") || is_own(node, "attend")) && !fits_attention(node))
        return false;
    if (is_conv(node) && !has_tail(node))
        return false;
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_use *use = &node->inputs[i];
        if ((use->value == r->past_len || use->value == r->new_len) && !takes_lengths(node))
            return false;
        if (is_cache(use->value) && !takes_cache(node, use))
            return false;
        if (use->value && use->value->def && is_own(use->value->def, "kv_tail") && !is_conv(node))
            return false;
    }
    return !counts_rows(r, node);
}

static gqac_status check_node(void *arg, ir_node *node) {
    ragged *r = arg;
    if (node->op->flags & IR_OP_RETURN || fits(r, node))
        return GQAC_OK;
    r->context->padded_by = node;
    return GQAC_MISMATCH;
}

/* [.., B, S] as the ids are. */
static bool is_call(const ragged *r, const ir_value *value) {
    const int rank = value->type.rank;
    return rank >= 2 && value->type.dims[rank - 2] == r->batch &&
           value->type.dims[rank - 1] == r->length;
}

/* True if logits are those of wanted rows, or of all. */
static bool returns_rows(const ragged *r) {
    const ir_value *logits = pass_logits(r->graph);
    if (!logits)
        return false;
    if (pass_input(r->graph, "gqac.logit_rows") ||
        (logits->type.rank == 3 && logits->type.dims[1] == r->length))
        return true;
    r->context->padded_by = logits->def;
    return false;
}

static gqac_status check(ragged *r, bool *may) {
    const ir_node **mixing;
    int n;
    int64_t size;
    *may = false;
    if (!r->batch || !r->length || ir_dim_is_const(r->length, &size) || r->batch == r->length ||
        (ir_dim_is_const(r->batch, &size) && size != 1))
        return GQAC_OK;
    if (!returns_rows(r))
        return GQAC_OK;
    if (pass_check_invariance(r->context->module, r->context->module->arena, &mixing, &n) !=
        GQAC_OK)
        return gqac_diag_oom(r->context->diag, "a list of nodes");
    for (int i = 0; i < n; i++)
        if (!has_tail(mixing[i]) && !computes_shapes(mixing[i])) {
            r->context->padded_by = mixing[i];
            return GQAC_OK;
        }
    *may = ir_graph_walk(r->graph, check_node, r) == GQAC_OK;
    return GQAC_OK;
}

/* ---- packing ------------------------------------------------------------- */

/* Sets the types of the graph inputs that the run time fills. */
static gqac_status retype(ragged *r) {
    ir_module *module = r->context->module;
    const ir_dim *one = ir_dim_const(module->dims, 1);
    const ir_dim *n = ir_dim_symbol(module->dims, ATTENTION_SEQUENCES);
    for (int i = 0; i < r->graph->n_inputs; i++) {
        ir_value *input = r->graph->inputs[i];
        const ir_dim *dims[GQAC_MAX_RANK];
        const int rank = input->type.rank;
        if (input == r->past_len || input == r->new_len) {
            input->type = ir_type_make(module, GQAC_I32, 1, &n);
        } else if (is_call(r, input) || (input == r->ids && rank == 3)) {
            memcpy(dims, input->type.dims, (size_t)rank * sizeof *dims);
            dims[input == r->ids ? 0 : rank - 2] = one;
            input->type = ir_type_make(module, input->type.dtype, rank, dims);
        }
        if (input->type.rank < 0)
            return gqac_diag_oom(r->context->diag, "an input");
    }
    return GQAC_OK;
}

static gqac_status make_positions(ragged *r) {
    const ir_dim *dims[2] = {ir_dim_const(r->context->module->dims, 1), r->length};
    if (r->positions)
        return GQAC_OK;
    r->positions = ir_graph_add_input(r->graph, "gqac.positions",
                                      ir_type_make(r->context->module, GQAC_I64, 2, dims));
    return r->positions ? GQAC_OK : gqac_diag_oom(r->context->diag, "an input");
}

/* Gives rotary the position of each row; there is no padding. */
static gqac_status place_rotary_rows(ragged *r, ir_node *node) {
    ir_value *in[ROTARY_POSITION_IDS + 1] = {NULL};
    for (int i = 0; i <= ROTARY_POSITION_IDS; i++)
        in[i] = ir_node_input(node, i);
    if (!in[ROTARY_PAST_LEN] && !in[ROTARY_NEW_LEN])
        return GQAC_OK;
    if (!in[ROTARY_POSITION_IDS])
        GQAC_TRY(make_positions(r));
    in[ROTARY_PAST_LEN] = in[ROTARY_NEW_LEN] = NULL;
    if (!in[ROTARY_POSITION_IDS])
        in[ROTARY_POSITION_IDS] = r->positions;
    return ir_node_set_inputs(node, ROTARY_POSITION_IDS + 1, in)
               ? GQAC_OK
               : gqac_diag_oom(r->context->diag, "operands");
}

static gqac_status tell_attend(ragged *r, ir_node *node) {
    const int at = ir_schema_index(node->op->inputs, "new_len");
    const int n = node->n_inputs > at ? node->n_inputs : at + 1;
    ir_value *in[OP_LINE_INPUTS];
    for (int i = 0; i < n; i++)
        in[i] = i == at ? r->new_len : ir_node_input(node, i);
    return ir_node_set_inputs(node, n, in) ? GQAC_OK : gqac_diag_oom(r->context->diag, "operands");
}

static gqac_status replace_conv(ragged *r, ir_node *node) {
    ir_builder b = {.graph = node->graph, .before = node, .diag = r->context->diag};
    ir_value *y = OP_BUILD(
        &b, "causal_conv",
        .in = {ir_node_operand(node, "input"), ir_node_operand(node, "weight"),
               ir_node_operand(node, "bias"), ir_node_operand(node, "past_state"), r->new_len},
        .of = node, .same = {"activation", *node->op->domain ? "dilation" : NULL});
    GQAC_TRY(b.status);
    y->def->name = node->name;
    ir_value_replace(node->outputs[0], y);
    ir_node_remove(node);
    return GQAC_OK;
}

static gqac_status pack(ragged *r) {
    ir_node *next;
    for (ir_node *node = r->graph->first; node; node = next) {
        next = node->next;
        if (is_own(node, "rotary"))
            GQAC_TRY(place_rotary_rows(r, node));
        else if (is_own(node, "attend"))
            GQAC_TRY(tell_attend(r, node));
        else if (is_conv(node))
            GQAC_TRY(replace_conv(r, node));
    }
    GQAC_TRY(retype(r));
    r->context->changed++;
    return pass_infer_again(r->graph, r->context->diag);
}

static gqac_status run(pass_context *context) {
    ir_graph *graph = context->module->graph;
    ragged r = {.context = context,
                .graph = graph,
                .past_len = pass_input(graph, "gqac.past_len"),
                .new_len = pass_input(graph, "gqac.new_len")};
    bool may;
    if (!(context->facts & PASS_STATEFUL)) /* `stateful` was disabled */
        return GQAC_OK;
    for (int i = 0; i < graph->n_inputs; i++) {
        ir_value *input = graph->inputs[i];
        if (!r.ids && pass_is_embeds(input))
            r.ids = input;
        if (input->type.rank != 2)
            continue;
        if (!strcmp(input->name, "position_ids") || !strcmp(input->name, "gqac.positions"))
            r.positions = input;
        else if (!r.ids || !strcmp(input->name, "input_ids"))
            r.ids = input;
    }
    if (!r.ids || !r.new_len || attention_is_packed(r.new_len))
        return GQAC_OK; /* not such a model, or it ran before */
    for (int i = 0; i < 2; i++) {
        const ir_value *lengths = i ? r.new_len : r.past_len;
        if (lengths && (lengths->type.dtype != GQAC_I32 || lengths->type.rank != 1))
            return GQAC_OK; /* the run time refuses it */
    }
    r.batch = r.ids->type.dims[0];
    r.length = r.ids->type.dims[1];
    if (r.positions && !is_call(&r, r.positions))
        return GQAC_OK;
    GQAC_TRY(check(&r, &may));
    return may ? pack(&r) : GQAC_OK;
}

const gqac_pass pass_ragged = {
    .name = "ragged",
    .summary = "the new rows of all sequences of a step, one after another without padding",
    .needs = PASS_TYPED,
    .breaks = PASS_CLAIMED | PASS_ORDERED | PASS_PLANNED,
    .sequences = true,
    .run = run,
};
