/* Attention: softmax(scale * q k^T + mask) v becomes Attention.
 *
 * Queries, keys and values are [B,H,S,D], or [B*H,S,D]. The scale may be applied to either factor,
 * to both, or after the product; a softcap may come before the mask; a mask is added, or selects
 * the scores that remain. Keys and values may be repeated for groups of heads, and may be a past
 * followed by new rows; the past then becomes an operand of the op. This file finds the pattern and
 * checks that its parts fit each other; the files that raise_attention.h names match, read and
 * build the parts. */
#include "passes/raise_attention.h"

#include <math.h>

/* ---- from the root to the softmax ---------------------------------------- */

static ir_value *through_casts(ir_value *value) {
    ir_value *x = raise_through_cast(value);
    while (x != value) {
        value = x;
        x = raise_through_cast(value);
    }
    return value;
}

/* Returns p of Where(IsNaN(p), 0, p), which turns rows without a visible key into zeros. One p may
 * be a Cast of the other. */
static ir_value *through_guard(ir_value *value) {
    double zero = 1;
    const ir_node *where = raise_maker(value, "Where");
    const ir_node *nan = where ? raise_maker(ir_node_input(where, 0), "IsNaN") : NULL;
    const bool guard =
        nan && raise_scalar(ir_node_input(where, 1), &zero) && zero == 0 &&
        through_casts(ir_node_input(nan, 0)) == through_casts(ir_node_input(where, 2));
    return guard ? ir_node_input(where, 2) : value;
}

static const ir_node *find_softmax(raise *r, ir_value *value, attention *a) {
    ir_value *four = raise_unfolded(value);
    value = four ? four : value;
    if (r->unpadded)
        value = raise_through_codes(value, &a->weights);
    value = through_casts(through_guard(through_casts(value)));
    const ir_node *slice = raise_maker(value, "Slice"), *softmax = raise_maker(value, "Softmax");
    if (slice)
        return raise_sunk_softmax(r, slice, &a->softmax_input, &a->sinks);
    a->softmax_input = softmax ? ir_node_input(softmax, 0) : NULL;
    return softmax;
}

/* ---- whether the parts fit ----------------------------------------------- */

bool raise_fits(raise *r, const attention *a, const ir_node *place) {
    const int64_t hq = raise_dim(a->q, 1), hk = raise_dim(a->k.rows, 1);
    if (a->q->type.rank != 4 || !hq || !raise_dim(a->q, 3))
        return raise_stopped(r, a->q->def ? a->q->def : place,
                             "queries are not [B,H,S,D] with constant H and D");
    if (raise_dim(a->v.rows, 1) != hk || hq % hk || raise_dim(a->k.rows, 3) != raise_dim(a->q, 3))
        return raise_stopped(r, place, "heads of queries, keys and values do not match");
    if (a->sinks && (raise_dim(a->v.rows, 3) != raise_dim(a->q, 3) ||
                     raise_dim(a->sinks, a->sinks->type.rank - 3) != hq))
        return raise_stopped(r, place,
                             "sinks need heads of equal size, and one number for each head");
    if (!isfinite((float)a->scores.scale))
        return raise_stopped(r, place, "the scale is not finite");
    if (!a->k.past != !a->v.past)
        return raise_stopped(r, place, "only one of keys and values has a past");
    if (a->k.present &&
        (a->k.present->graph != place->graph || a->v.present->graph != place->graph))
        return raise_stopped(r, place,
                             "its past and its new rows are concatenated in another graph");
    return true;
}

/* x before a Cast from f16 or bf16 to f32; NULL: there is none. */
static ir_value *narrow(const ir_value *x, gqac_dtype type) {
    const ir_node *cast = raise_maker(x, "Cast");
    ir_value *y = cast ? ir_node_input(cast, 0) : NULL;
    return y && y->type.dtype == type && pass_widens(type, x->type.dtype) ? y : NULL;
}

/* Files of GPT-J and Phi in f16 multiply queries and keys in f32, and probabilities and values in
 * f16. Attention of f16 computes scores in f32 too, so the Casts are removed. */
static void take_narrow(attention *a, ir_value **k, const ir_value *v) {
    ir_value *q = narrow(a->q, v->type.dtype), *narrow_k = narrow(*k, v->type.dtype);
    if (q && narrow_k) {
        a->q = q;
        *k = narrow_k;
    }
}

static bool read(raise *r, attention *a) {
    const ir_value *s = a->softmax_input;
    const int64_t axis = ir_attr_int(a->softmax, "axis");
    double *scale = &a->scores.scale;
    if (s->type.rank < 3 || s->type.rank > 4 || (axis != -1 && axis != s->type.rank - 1))
        return raise_stopped(r, a->softmax, "it is not over the last axis of scores [B,H,S,T]");
    if (!raise_find_scores(r, a->softmax, a->softmax_input, &a->scores))
        return false;
    double before = 1; /* factors of q and k, of which rounded scores are the product */
    if (a->scores.codes.scale)
        scale = &before;
    a->q = raise_unscaled(a->scores.q, scale);
    if (a->q->type.rank == 3 && raise_unfolded(a->q))
        a->q = raise_unscaled(raise_unfolded(a->q), scale);
    ir_value *k = raise_untransposed_key(r, a->scores.k, scale), *v = ir_node_input(a->root, 1);
    if (v->type.rank == 3 && raise_unfolded(v))
        v = raise_unfolded(v);
    if (before != 1)
        return raise_stopped(r, a->softmax, "queries or keys are scaled before scores are rounded");
    if (k)
        take_narrow(a, &k, v);
    return k && raise_read_operand(r, k, &a->k) && raise_read_operand(r, v, &a->v) &&
           raise_fits(r, a, a->scores.q->def ? a->scores.q->def : a->root) &&
           raise_read_masks(r, a);
}

/* True if an op that mixes rows would read rows of padding, which Attention sets to zero. A
 * sequence has no such rows, and files are raised to be rewritten mostly for sequences. */
static bool shows_hidden_rows(raise *r, const attention *a) {
    if (r->portable || r->context->options.for_sequences || !raise_may_hide_rows(a))
        return false;
    const ir_node *mixing = raise_find_mixing(r, a->root);
    if (mixing)
        raise_stopped(r, mixing,
                      "it mixes all rows, and rows of padding would become zeros; in sequences, "
                      "which have no padding, attention is raised");
    return mixing != NULL;
}

/* Why attention whose scores or probabilities are rounded to codes cannot be raised; NULL: it can.
 */
static const char *no_codes(const attention *a) {
    if (!a->k.past || a->sinks)
        return "quantised scores need a past here, and no sinks";
    for (int i = 0; i < a->scores.n; i++)
        if (a->scores.parts[i].carried && !a->scores.parts[i].seen.slopes)
            return "with quantised scores a mask must be causality, a window or a slope (ALiBi)";
    return NULL;
}

ir_value *raise_attention(raise *r, ir_node *matmul) {
    attention a = {.root = matmul, .scores = {.scale = 1}};
    ir_value *p = ir_node_input(matmul, 0), *v = ir_node_input(matmul, 1);
    if (!r->unpadded && raise_maker(raise_through_codes(p, &a.weights), "Softmax") &&
        a.weights.scale) {
        r->what = "Attention";
        return raise_stopped(r, p->def,
                             "it rounds probabilities to codes; in sequences it is raised"),
               NULL;
    }
    a.softmax = find_softmax(r, p, &a);
    raise look = {.b = r->b};
    const ir_value *rows = raise_unrepeated(&look, v);
    if (v->constant || (!a.softmax && !(rows && raise_past_concat(rows))))
        return NULL;
    r->what = "Attention";
    if (!a.softmax)
        return raise_stopped(r, p->def ? p->def : matmul, "values are not weighed by a softmax"),
               NULL;
    if (!read(r, &a) || shows_hidden_rows(r, &a))
        return NULL;
    const char *no = a.sinks ? raise_no_sinks(r, &a.mask, a.k.past, a.has_tensors) : NULL;
    if (!no && (a.scores.codes.scale || a.weights.scale))
        no = no_codes(&a);
    if (no)
        return raise_stopped(r, a.softmax, no), NULL;
    const ir_type *t = &matmul->outputs[0]->type;
    if (t->rank >= 3) { /* after broadcasts another symbol may stand for the number of rows */
        r->rows = t->dims[t->rank - 2];
        r->queries = a.q->type.dims[2];
    }
    ir_value *y = raise_build_attention(r, &a);
    return t->rank == 3 ? raise_build_folded(r, y) : y;
}

/* ---- an Attention without its cache -------------------------------------- */

/* For exports with the op itself, in which the past, the groups of heads and causality are nodes
 * before it.
 */
ir_value *raise_cached(raise *r, ir_node *node) {
    attention a = {.root = node, .q = ir_node_input(node, 0)};
    raise look = {.b = r->b};
    const ir_value *rows = raise_unrepeated(&look, ir_node_input(node, 1));
    int64_t size = a.q->type.rank == 4 ? raise_dim(a.q, 3) : 0;
    if (!rows || !raise_past_concat(rows) || ir_node_operand(node, "past_key") ||
        ir_node_operand(node, "nonpad_kv_seqlen"))
        return NULL;
    r->what = "Attention";
    if (ir_attr_int(node, "is_causal") || ir_attr_int(node, "left_window_size") >= 0 ||
        ir_attr_int(node, "right_window_size") >= 0)
        return raise_stopped(r, node, "without its past, positions would be counted differently"),
               NULL;
    if (!size || ir_node_output(node, 1) || ir_node_output(node, 3))
        return raise_stopped(r, node, "its operands are not [B,H,S,D], or it has more results"),
               NULL;
    if (ir_node_operand(node, "attn_mask"))
        a.scores.parts[a.scores.n++] = (raise_part){.of = ir_node_operand(node, "attn_mask")};
    a.scores.softcap = (double)ir_attr_float(node, "softcap");
    a.scores.scale = ir_attr_is_set(node, "scale") ? (double)ir_attr_float(node, "scale")
                                                   : 1 / sqrt((double)size);
    if (!raise_read_operand(r, ir_node_input(node, 1), &a.k) ||
        !raise_read_operand(r, ir_node_input(node, 2), &a.v) || !raise_fits(r, &a, node) ||
        !raise_read_masks(r, &a))
        return NULL;
    return raise_build_attention(r, &a);
}
