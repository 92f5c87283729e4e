/* Attention: softmax(scale * q k^T + mask) v becomes Attention.
 *
 * Queries, keys and values are [B,H,S,D]. The scale may stand on either side, on both, or behind
 * the product; a softcap before the mask; the mask is added, or picks what is left of the scores.
 * Keys and values may be repeated for groups of heads, and may be a past with new rows behind it,
 * which is then the op's own. The op is given [B,S,H*D] and the attention mask as it is: what the
 * mask says besides (raise_mask.c) are its attributes. */
#include "ops/build.h"
#include "passes/raise_scores.h"

#include <float.h>
#include <math.h>

#include "ops/shared.h"

typedef struct operand { /* keys or values */
    ir_value *rows;      /* [B,H,T,D], new ones where there is a past */
    ir_value *past;      /* NULL: none */
    ir_value *present;
} operand;

typedef struct attention {
    const ir_node *root, *softmax;
    ir_value *given; /* to the softmax, but for sinks */
    ir_value *sinks; /* NULL: none */
    ir_value *q;
    operand k, v;
    raise_scores scores;
    raise_mask seen; /* what all masks say that are read */
    bool carries;    /* some go on as a tensor */
} attention;

/* ---- from the root to the softmax ---------------------------------------- */

/* Rows that see nothing made zero: Where(IsNaN(p), 0, p). */
static ir_value *through_guard(ir_value *value) {
    double zero = 1;
    const ir_node *where = raise_maker(value, "Where");
    const ir_node *nan = where ? raise_maker(ir_node_input(where, 0), "IsNaN") : NULL;
    const bool guard = nan && raise_scalar(ir_node_input(where, 1), &zero) && zero == 0 &&
                       ir_node_input(nan, 0) == ir_node_input(where, 2);
    return guard ? ir_node_input(where, 2) : value;
}

static const ir_node *find_softmax(raise *r, ir_value *value, attention *a) {
    ir_value *four = raise_unfolded(value);
    value = through_guard(raise_through_cast(through_guard(four ? four : value)));
    const ir_node *slice = raise_maker(value, "Slice"), *softmax = raise_maker(value, "Softmax");
    if (slice)
        return raise_sunk_softmax(r, slice, &a->given, &a->sinks);
    a->given = softmax ? ir_node_input(softmax, 0) : NULL;
    return softmax;
}

/* ---- keys and values ----------------------------------------------------- */

static bool same_dims(const ir_value *a, int first_a, const ir_value *b, int first_b, int n) {
    for (int i = 0; i < n; i++)
        if (!a->type.dims[first_a + i] || a->type.dims[first_a + i] != b->type.dims[first_b + i])
            return false;
    return true;
}

/* Heads picked by number: each n times, one after the other. */
static ir_value *through_gather(raise *r, const ir_node *gather) {
    enum { MOST_HEADS = 1024 };
    ir_value *x = ir_node_input(gather, 0);
    const int64_t heads = raise_dim(x, 1);
    int64_t picked[MOST_HEADS], n = 0;
    bool same = ir_const_ints(ir_node_input(gather, 1), MOST_HEADS, picked, &n) && heads > 0 &&
                n % heads == 0;
    for (int64_t i = 0; same && i < n; i++)
        same = picked[i] == i / (n / heads);
    if (!same)
        (void)raise_stopped(r, gather, "it does not repeat heads [B,h,T,D] -> [B,h*n,T,D]");
    return same ? x : NULL;
}

static bool picks_heads(const ir_node *gather) {
    const int64_t axis = ir_attr_int(gather, "axis");
    return ir_node_input(gather, 0)->type.rank == 4 && ir_node_input(gather, 1)->type.rank == 1 &&
           (axis == 1 || axis == -3);
}

/* x where the value is x [B,h,T,D] with each head n times: [B,h,1,T,D] -> [B,h,n,T,D] ->
 * [B,h*n,T,D], or by number. The value itself when nothing is repeated, NULL when it is not done
 * so. */
static ir_value *through_repeat(raise *r, ir_value *value) {
    const ir_node *gather = raise_maker(value, "Gather");
    if (gather && picks_heads(gather))
        return through_gather(r, gather);
    const ir_node *reshape = raise_maker(value, "Reshape");
    const ir_node *expand = reshape ? raise_maker(ir_node_input(reshape, 0), "Expand") : NULL;
    if (reshape && !expand)
        expand = raise_maker(ir_node_input(reshape, 0), "Tile");
    if (!expand)
        return value;
    const ir_value *five = ir_node_input(reshape, 0), *one = ir_node_input(expand, 0);
    ir_node *add = raise_maker(one, "Unsqueeze");
    if (!add)
        add = raise_maker(one, "Reshape");
    ir_value *x = add ? ir_node_input(add, 0) : NULL;
    if (!x || x->type.rank != 4 || one->type.rank != 5 || five->type.rank != 5 ||
        value->type.rank != 4 || raise_dim(one, 2) != 1 || !same_dims(x, 0, one, 0, 2) ||
        !same_dims(x, 2, one, 3, 2) || raise_dim(five, 1) != raise_dim(x, 1) ||
        !same_dims(x, 0, five, 0, 1) || !same_dims(x, 2, five, 3, 2) ||
        !same_dims(x, 0, value, 0, 1) || !same_dims(x, 2, value, 2, 1) ||
        raise_dim(value, 1) != raise_dim(five, 1) * raise_dim(five, 2) || !raise_dim(value, 1) ||
        raise_dim(value, 3) != raise_dim(x, 3))
        return raise_stopped(r, expand, "it does not repeat heads [B,h,T,D] -> [B,h*n,T,D]"), NULL;
    return x;
}

static bool along_rows(const ir_node *concat) {
    const int64_t axis = ir_attr_int(concat, "axis");
    return axis == 2 || axis == -2;
}

/* Rows behind a past that is a graph input. */
static const ir_node *grows(const ir_value *value) {
    const ir_node *concat = raise_maker(value, "Concat");
    const ir_value *past = concat ? ir_node_input(concat, 0) : NULL;
    return past && !past->def && !past->constant && past->type.rank == 4 && concat->n_inputs == 2
               ? concat
               : NULL;
}

/* The node between a past with its rows and the value, which is not that itself; NULL: there is no
 * past behind it. Of several the one that is no Reshape and nearest to the value. */
static const ir_node *after_past(const ir_value *value) {
    enum { MOST = 6 };
    const ir_node *first = NULL;
    for (int i = 0; i < MOST && value && value->def && !grows(value); i++) {
        const bool shapes = op_is(value->def, "", "Reshape") || op_is(value->def, "", "Unsqueeze");
        if (!first || (op_is(first, "", "Reshape") && !shapes))
            first = value->def;
        value = ir_node_input(value->def, 0);
    }
    return value && grows(value) ? first : NULL;
}

static bool read_operand(raise *r, ir_value *value, operand *o) {
    ir_value *x = through_repeat(r, value);
    const ir_node *concat = x ? grows(x) : NULL;
    if (!x)
        return false;
    o->rows = x;
    if (!concat && after_past(x))
        return raise_stopped(r, after_past(x), "it stands between a past and its attention");
    if (concat) {
        if (!along_rows(concat))
            return raise_stopped(r, concat, "the past is not put before the new rows");
        o->present = x;
        o->past = ir_node_input(concat, 0);
        o->rows = ir_node_input(concat, 1);
    }
    if (o->rows->type.rank != 4 || !raise_dim(o->rows, 1) || !raise_dim(o->rows, 3))
        return raise_stopped(r, o->rows->def ? o->rows->def : r->b.before,
                             "its result is not [B,H,T,D] with constant H and D");
    return true;
}

/* Heads [B,h,n,T,D], repeated by Expand, as [B,h*n,T,D]. */
static ir_value *repeated_as_four(raise *r, ir_value *x) {
    const int64_t heads = raise_dim(x, 1) * raise_dim(x, 2), size = raise_dim(x, 4);
    if (!raise_maker(x, "Expand") || !heads || !size)
        return NULL;
    ir_value *y = OP_RESHAPE(&r->b, x, 0, heads, -1, size);
    if (y)
        r->b.status = pass_infer_node(y->def, r->b.diag);
    return r->b.status == GQAC_OK ? y : NULL;
}

/* x [B,H,T,D] where the value [B,H,D,T] has its last axes swapped as [B*H,T,D] -> [B*H,D,T]. */
static ir_value *swapped_as_three(raise *r, const ir_value *value) {
    static const int64_t last[] = {0, 2, 1};
    const ir_node *outer = raise_maker(value, "Reshape");
    const ir_node *swap = outer ? raise_maker(ir_node_input(outer, 0), "Transpose") : NULL;
    const ir_node *inner = swap ? raise_maker(ir_node_input(swap, 0), "Reshape") : NULL;
    ir_value *x = inner ? ir_node_input(inner, 0) : NULL;
    if (x && x->type.rank == 5)
        x = repeated_as_four(r, x);
    if (!x || !raise_is_perm(swap, 3, last) || x->type.rank != 4 || value->type.rank != 4 ||
        inner->outputs[0]->type.rank != 3)
        return NULL;
    const bool same = same_dims(x, 2, inner->outputs[0], 1, 2) && same_dims(x, 0, value, 0, 2) &&
                      same_dims(x, 2, value, 3, 1) && same_dims(x, 3, value, 2, 1);
    return same ? x : NULL;
}

/* k where the value is k^T, possibly scaled; [B,H,T,D] too where that is [B*H,D,T]. */
static ir_value *through_transpose(raise *r, ir_value *value, double *scale) {
    static const int64_t last[] = {0, 1, 3, 2}, both[] = {0, 2, 3, 1}, heads[] = {0, 2, 1, 3};
    static const int64_t of_three[] = {0, 2, 1};
    value = raise_unscaled(value, scale);
    if (value->type.rank == 3 && raise_unfolded(value))
        value = raise_unscaled(raise_unfolded(value), scale);
    const ir_node *transpose = raise_maker(value, "Transpose");
    if (transpose && raise_is_perm(transpose, 3, of_three)) {
        ir_value *four = raise_unfolded(raise_unscaled(ir_node_input(transpose, 0), scale));
        return four ? raise_unscaled(four, scale)
                    : (raise_stopped(r, transpose, "its operand is not k [B,H,T,D] as [B*H,T,D]"),
                       NULL);
    }
    ir_value *x = transpose ? ir_node_input(transpose, 0) : swapped_as_three(r, value);
    if (!x)
        return raise_stopped(r, value->def ? value->def : r->b.before,
                             "the second factor is not k with its last axes swapped"),
               NULL;
    if (!transpose || raise_is_perm(transpose, 4, last))
        return raise_unscaled(x, scale);
    if (!raise_is_perm(transpose, 4, both))
        return raise_stopped(r, transpose, "it does not swap the last axes of k"), NULL;
    x = op_build_transpose(&r->b, x, 4, heads);
    if (x)
        r->b.status = pass_infer_node(x->def, r->b.diag);
    return r->b.status == GQAC_OK ? x : NULL;
}

/* ---- the whole ----------------------------------------------------------- */

static bool fits(raise *r, const attention *a, const ir_node *place) {
    const int64_t hq = raise_dim(a->q, 1), hk = raise_dim(a->k.rows, 1);
    if (a->q->type.rank != 4 || !hq || !raise_dim(a->q, 3))
        return raise_stopped(r, a->q->def ? a->q->def : place,
                             "queries are not [B,H,S,D] with constant H and D");
    if (raise_dim(a->v.rows, 1) != hk || hq % hk || raise_dim(a->k.rows, 3) != raise_dim(a->q, 3))
        return raise_stopped(r, place, "heads of queries, keys and values do not go together");
    if (a->sinks && (raise_dim(a->v.rows, 3) != raise_dim(a->q, 3) ||
                     raise_dim(a->sinks, a->sinks->type.rank - 3) != hq))
        return raise_stopped(r, place, "sinks need heads of one size, and a number for each");
    if (!isfinite((float)a->scores.scale))
        return raise_stopped(r, place, "the scale is not finite");
    if (!a->k.past != !a->v.past)
        return raise_stopped(r, place, "one of keys and values has a past, the other has none");
    if (a->k.present &&
        (a->k.present->graph != place->graph || a->v.present->graph != place->graph))
        return raise_stopped(r, place, "its cache is put together in another graph");
    return true;
}

/* A mask of [B*H,S,T] or of a part of its dims as [B,H,S,T]. */
static ir_value *as_four(raise *r, ir_value *x, int64_t heads) {
    if (x->type.rank != 3 || raise_dim(x, 0) == 1)
        return x;
    ir_value *split = OP_I64S(&r->b, -1, heads), *rest = op_build_lengths(&r->b, x, 1, 2);
    ir_value *to = op_build_concat(&r->b, 0, 2, (ir_value *[]){split, rest});
    ir_value *y = OP_BUILD(&r->b, "Reshape", .in = {x, to});
    for (ir_node *node = y ? rest->def : NULL; node && r->b.status == GQAC_OK;
         node = node == y->def ? NULL : node->next)
        r->b.status = pass_infer_node(node, r->b.diag);
    return y;
}

/* Why may Attention not be given it as it is? NULL: it may. Where it had it already, it may. */
static const char *not_carried(raise *r, const attention *a, raise_part *part, const ir_dim *keys) {
    if (a->scores.behind != 0)
        return "a scale is behind the mask";
    return !a->softmax ||
                   raise_mask_fits(r, &part->of->type, &a->q->type, a->k.past, keys, &part->narrow)
               ? NULL
               : "the mask may have other rows than the queries";
}

/* What stopped the reader of a mask; nothing where a sequence, where nothing is padding, reads
 * slopes, and what stops it there where it does not. */
static void note_carried(raise *r, const attention *a, const raise_part *part, const ir_dim *keys) {
    raise_mask seen = {.left = -1};
    raise look = *r;
    look.unpadded = true;
    look.stop = NULL;
    const bool told =
        raise_read_mask(&look, part->of, part->hidden, &a->q->type, a->k.past, keys, &seen);
    r->b.status = look.b.status;
    if (told && seen.slopes)
        return;
    r->carried = told ? r->stop : look.stop;
    r->carried_why = told ? r->why : look.why;
}

/* What it says becomes attributes; what cannot be told goes on as a tensor, for which there is a
 * note. */
static bool read_part(raise *r, attention *a, raise_part *part) {
    const ir_dim *keys = (a->k.past ? a->k.present : a->k.rows)->type.dims[2];
    const ir_node *stop = r->stop;
    const char *why = r->why;
    if (part->folded)
        part->of = as_four(r, part->of, raise_dim(a->q, 1));
    if (r->b.status != GQAC_OK)
        return false;
    part->seen = (raise_mask){.left = -1};
    if (raise_read_mask(r, part->of, part->hidden, &a->q->type, a->k.past, keys, &part->seen)) {
        part->carried = part->seen.slopes || (r->portable && part->seen.left >= 0);
        const char *no = part->carried ? not_carried(r, a, part, keys) : NULL;
        return !no || raise_stopped(r, part->of->def ? part->of->def : a->root, no);
    }
    const char *no = not_carried(r, a, part, keys);
    if (no) {
        r->stop = stop;
        return raise_stopped(r, part->of->def ? part->of->def : a->root, no);
    }
    if (!r->carried)
        note_carried(r, a, part, keys);
    r->stop = stop;
    r->why = why;
    part->carried = true;
    part->seen = (raise_mask){.left = -1};
    return true;
}

/* All masks together. */
static bool read_masks(raise *r, attention *a) {
    a->seen = (raise_mask){.left = -1};
    for (int i = 0; i < a->scores.n; i++) {
        raise_part *part = &a->scores.parts[i];
        if (!read_part(r, a, part))
            return false;
        const raise_mask *m = &part->seen;
        if (a->seen.padding && m->padding && a->seen.padding != m->padding)
            part->carried = true;
        a->seen.causal = a->seen.causal || m->causal;
        if (m->left >= 0 && (a->seen.left < 0 || m->left < a->seen.left))
            a->seen.left = m->left;
        if (m->padding && !part->carried)
            a->seen.padding = m->padding;
        a->carries = a->carries || part->carried;
    }
    return true;
}

static bool read(raise *r, attention *a) {
    const ir_value *s = a->given;
    const int64_t axis = ir_attr_int(a->softmax, "axis");
    double *scale = &a->scores.scale;
    if (s->type.rank < 3 || s->type.rank > 4 || (axis != -1 && axis != s->type.rank - 1))
        return raise_stopped(r, a->softmax, "it is not over the last axis of scores [B,H,S,T]");
    if (!raise_find_scores(r, a->softmax, a->given, &a->scores))
        return false;
    a->q = raise_unscaled(a->scores.q, scale);
    if (a->q->type.rank == 3 && raise_unfolded(a->q))
        a->q = raise_unscaled(raise_unfolded(a->q), scale);
    ir_value *k = through_transpose(r, a->scores.k, scale), *v = ir_node_input(a->root, 1);
    if (v->type.rank == 3 && raise_unfolded(v))
        v = raise_unfolded(v);
    return k && read_operand(r, k, &a->k) && read_operand(r, v, &a->v) &&
           fits(r, a, a->scores.q->def ? a->scores.q->def : a->root) && read_masks(r, a);
}

ir_value *raise_padding(raise *r, ir_value *padding, ir_value *rows) {
    if (padding->type.dtype != GQAC_BOOL)
        padding = op_build_cast(&r->b, padding, GQAC_BOOL);
    ir_value *axes = OP_I64S(&r->b, 1, 2), *one = OP_I64S(&r->b, 1);
    padding = OP_BUILD(&r->b, "Unsqueeze", .in = {padding, axes});
    return raise_expand(r, padding, 4, (ir_value *[]){one, one, rows, one});
}

/* A part as a tensor that is added, or a truth where it is the only one. */
static ir_value *build_part(raise *r, const raise_part *part, bool alone) {
    if (!part->fill || (alone && part->seen.left >= 0 && !part->hidden))
        return part->of;
    if (alone && part->seen.left >= 0)
        return OP_BUILD(&r->b, "Not", .in = {part->of});
    ir_value *zero = ir_build_f32(&r->b, 0);
    if (part->fill->type.dtype != GQAC_F32)
        zero = op_build_cast(&r->b, zero, part->fill->type.dtype);
    return OP_BUILD(
        &r->b, "Where",
        .in = {part->of, part->hidden ? part->fill : zero, part->hidden ? zero : part->fill});
}

/* A column for each key. */
static ir_value *widen(raise *r, const operand *k, ir_value *mask) {
    ir_value *keys = raise_ask_dim(r, k->rows, 2);
    if (k->past)
        keys = OP_BUILD(&r->b, "Add", .in = {raise_ask_dim(r, k->past, 2), keys});
    return OP_BUILD(&r->b, "Expand", .in = {mask, keys});
}

/* Padding as numbers that are added to scores of queries q. */
static ir_value *build_hidden(raise *r, ir_value *padding, ir_value *q) {
    const gqac_dtype dtype = q->type.dtype;
    ir_value *here = raise_padding(r, padding, raise_ask_dim(r, q, 2));
    ir_value *in[] = {here, ir_build_f32(&r->b, 0),
                      ir_build_f32(&r->b, dtype == GQAC_F16 ? -65504 : -FLT_MAX)};
    for (int i = 1; i < 3 && dtype != GQAC_F32; i++)
        in[i] = op_build_cast(&r->b, in[i], dtype);
    return OP_BUILD(&r->b, "Where", .in = {in[0], in[1], in[2]});
}

/* What attributes cannot say: padding, or every part that says something beside them. */
static ir_value *build_all_of_mask(raise *r, const attention *a) {
    ir_value *rows = NULL, *sum = NULL;
    const raise_scores *s = &a->scores;
    if (!a->carries)
        return a->seen.padding ? raise_padding(r, a->seen.padding, raise_ask_dim(r, a->q, 2))
                               : NULL;
    bool wide = false; /* has it a row for each query? */
    for (int i = 0; i < s->n; i++) {
        const raise_part *part = &s->parts[i];
        if (!part->carried && !part->seen.padding)
            continue;
        ir_value *one = part->carried ? build_part(r, part, s->n == 1)
                                      : build_hidden(r, part->seen.padding, a->q);
        if (part->carried && part->narrow)
            one = widen(r, &a->k, one);
        const int rank = part->of->type.rank;
        wide = wide || !part->carried ||
               (rank > 1 && part->of->type.dims[rank - 2] == a->q->type.dims[2]);
        sum = sum ? OP_BUILD(&r->b, "Add", .in = {sum, one}) : one;
    }
    if (wide || !r->portable)
        return sum;
    rows = raise_ask_dim(r, a->q, 2);
    ir_value *one = OP_I64S(&r->b, 1);
    return raise_expand(r, sum, 4, (ir_value *[]){one, one, rows, one});
}

/* Heads that were split off [B,S,H*D]. */
static bool is_split(const ir_value *x) {
    static const int64_t heads[] = {0, 2, 1, 3};
    const ir_node *transpose = raise_maker(x, "Transpose");
    return transpose && raise_is_perm(transpose, 4, heads);
}

static ir_value *build(raise *r, const attention *a) {
    const int64_t heads = raise_dim(a->q, 1);
    const bool split = is_split(a->q) && is_split(a->k.rows) && is_split(a->v.rows);
    ir_value *in[] = {a->q, a->k.rows, a->v.rows, build_all_of_mask(r, a), a->k.past, a->v.past};
    ir_value *y, *present[2] = {NULL};
    for (int i = 0; i < 3 && split; i++)
        in[i] = raise_pack(r, in[i]);
    OP_BUILD(
        &r->b, "Attention", .list = {6, in},
        .ints = {{split ? "q_num_heads" : NULL, heads},
                 {split ? "kv_num_heads" : NULL, raise_dim(a->k.rows, 1)},
                 {"is_causal", a->seen.causal},
                 /* opset 25 */
                 {a->seen.left >= 0 && !r->portable ? "left_window_size" : NULL, a->seen.left}},
        .floats = {{"scale", (float)a->scores.scale}, {"softcap", (float)a->scores.softcap}},
        .out = {&y, a->k.past ? &present[0] : NULL, a->k.past ? &present[1] : NULL});
    if (!y)
        return NULL;
    raise_also(r, a->k.present, present[0], true); /* what the model gives back */
    raise_also(r, a->v.present, present[1], true);
    return split ? raise_unpack(r, y, heads, raise_dim(a->v.rows, 3)) : y;
}

static ir_value *build_sunk(raise *r, const attention *a) {
    const raise_sunk s = {.q = a->q,
                          .k = a->k.rows,
                          .v = a->v.rows,
                          .past_key = a->k.past,
                          .past_value = a->v.past,
                          .sinks = a->sinks,
                          .bias = a->seen.padding ? build_hidden(r, a->seen.padding, a->q) : NULL,
                          .seen = &a->seen,
                          .scale = a->scores.scale,
                          .softcap = a->scores.softcap};
    ir_node *node = NULL;
    ir_value *y = raise_build_sunk(r, &s, &node);
    if (!node)
        return NULL;
    raise_also(r, a->k.present, ir_node_output(node, 1), true);
    raise_also(r, a->v.present, ir_node_output(node, 2), true);
    return y;
}

/* y [B,H,S,D] where the product with the values is [B*H,S,D]. */
static ir_value *build_folded(raise *r, ir_value *y) {
    ir_value *first = OP_I64S(&r->b, -1), *rest = op_build_lengths(&r->b, y, 2, 2);
    ir_value *to = op_build_concat(&r->b, 0, 2, (ir_value *[]){first, rest});
    return OP_BUILD(&r->b, "Reshape", .in = {y, to});
}

/* May a query see no key? Not where a mask is causal, a window or a bias only. */
static bool may_hide_rows(const attention *a) {
    for (int i = 0; i < a->scores.n; i++) {
        const raise_part *part = &a->scores.parts[i];
        const bool told = !part->carried || part->seen.slopes || part->seen.left >= 0;
        if (part->seen.padding || !told)
            return true;
    }
    return false;
}

/* A sequence has no padding; a file is raised to be changed further, mostly into one of those. */
static bool shows_hidden_rows(raise *r, const attention *a) {
    if (r->portable || r->context->options.for_sequences || !may_hide_rows(a))
        return false;
    const ir_node *mixing = raise_find_mixing(r, a->root);
    if (mixing)
        raise_stopped(r, mixing,
                      "it takes all rows together, and rows of padding would become zeros; in "
                      "sequences, which have none, attention is raised");
    return mixing != NULL;
}

ir_value *raise_attention(raise *r, ir_node *matmul) {
    attention a = {.root = matmul, .scores = {.scale = 1}};
    ir_value *p = ir_node_input(matmul, 0), *v = ir_node_input(matmul, 1);
    a.softmax = find_softmax(r, p, &a);
    raise look = {.b = r->b};
    const ir_value *rows = through_repeat(&look, v);
    if (v->constant || (!a.softmax && !(rows && grows(rows))))
        return NULL;
    r->what = "Attention";
    if (!a.softmax)
        return raise_stopped(r, p->def ? p->def : matmul, "values are not weighed by a softmax"),
               NULL;
    if (!read(r, &a) || shows_hidden_rows(r, &a))
        return NULL;
    const char *no = a.sinks ? raise_no_sinks(r, &a.seen, a.k.past, a.carries) : NULL;
    if (no)
        return raise_stopped(r, a.softmax, no), NULL;
    const ir_type *t = &matmul->outputs[0]->type;
    if (t->rank >= 3) { /* broadcasts on the way may have hidden what it is */
        r->rows = t->dims[t->rank - 2];
        r->queries = a.q->type.dims[2];
    }
    ir_value *y = a.sinks ? build_sunk(r, &a) : build(r, &a);
    return t->rank == 3 ? build_folded(r, y) : y;
}

/* ---- an Attention beside its cache --------------------------------------- */

enum { MASK = 3, PAST_KEY, PAST_VALUE, NONPAD };

/* A tracer that knows the op puts the past, the groups of heads and causality around it. */
ir_value *raise_cached(raise *r, ir_node *node) {
    attention a = {.root = node, .q = ir_node_input(node, 0)};
    raise look = {.b = r->b};
    const ir_value *rows = through_repeat(&look, ir_node_input(node, 1));
    int64_t size = a.q->type.rank == 4 ? raise_dim(a.q, 3) : 0;
    if (!rows || !grows(rows) || ir_node_input(node, PAST_KEY) || ir_node_input(node, NONPAD))
        return NULL;
    r->what = "Attention";
    if (ir_attr_int(node, "is_causal") || ir_attr_int(node, "left_window_size") >= 0 ||
        ir_attr_int(node, "right_window_size") >= 0)
        return raise_stopped(r, node, "without its past, positions are counted otherwise"), NULL;
    if (!size || ir_node_output(node, 1) || ir_node_output(node, 3))
        return raise_stopped(r, node, "its operands are not [B,H,S,D], or it has more results"),
               NULL;
    if (ir_node_input(node, MASK))
        a.scores.parts[a.scores.n++] = (raise_part){.of = ir_node_input(node, MASK)};
    a.scores.softcap = (double)ir_attr_float(node, "softcap");
    a.scores.scale = ir_attr_is_set(node, "scale") ? (double)ir_attr_float(node, "scale")
                                                   : 1 / sqrt((double)size);
    if (!read_operand(r, ir_node_input(node, 1), &a.k) ||
        !read_operand(r, ir_node_input(node, 2), &a.v) || !fits(r, &a, node) || !read_masks(r, &a))
        return NULL;
    return build(r, &a);
}
