/* Keys and values of an attention: repeated for groups of heads or not, after a past or not, and
 * the keys with their last axes swapped, in three dims or four. */
#include "ops/build.h"
#include "passes/raise_attention.h"

bool raise_same_dims(const ir_value *a, int first_a, const ir_value *b, int first_b, int n) {
    for (int i = 0; i < n; i++)
        if (!a->type.dims[first_a + i] || a->type.dims[first_a + i] != b->type.dims[first_b + i])
            return false;
    return true;
}

/* Heads selected by index, each one n times in a row. */
static ir_value *through_gather(raise *r, const ir_node *gather) {
    enum { MOST_HEADS = 1024 };
    ir_value *x = ir_node_input(gather, 0);
    const int64_t heads = raise_dim(x, 1);
    int64_t index[MOST_HEADS], n = 0;
    bool same = ir_const_ints(ir_node_input(gather, 1), MOST_HEADS, index, &n) && heads > 0 &&
                n % heads == 0;
    for (int64_t i = 0; same && i < n; i++)
        same = index[i] == i / (n / heads);
    if (!same)
        (void)raise_stopped(r, gather, "it does not repeat heads [B,h,T,D] -> [B,h*n,T,D]");
    return same ? x : NULL;
}

static bool picks_heads(const ir_node *gather) {
    const int64_t axis = ir_attr_int(gather, "axis");
    return ir_node_input(gather, 0)->type.rank == 4 && ir_node_input(gather, 1)->type.rank == 1 &&
           (axis == 1 || axis == -3);
}

/* The only head, [B,1,T,D], of a value that repeats it for all queries; NULL: it does not. */
static ir_value *only_head(const ir_value *value) {
    const ir_node *expand = raise_maker(value, "Expand");
    ir_value *x = expand ? ir_node_input(expand, 0) : NULL;
    return x && x->type.rank == 4 && value->type.rank == 4 && raise_dim(x, 1) == 1 &&
                   raise_same_dims(x, 0, value, 0, 1) && raise_same_dims(x, 2, value, 2, 2)
               ? x
               : NULL;
}

ir_value *raise_unrepeated(raise *r, ir_value *value) {
    const ir_node *gather = raise_maker(value, "Gather");
    if (gather && picks_heads(gather))
        return through_gather(r, gather);
    if (only_head(value))
        return only_head(value);
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
        value->type.rank != 4 || raise_dim(one, 2) != 1 || !raise_same_dims(x, 0, one, 0, 2) ||
        !raise_same_dims(x, 2, one, 3, 2) || raise_dim(five, 1) != raise_dim(x, 1) ||
        !raise_same_dims(x, 0, five, 0, 1) || !raise_same_dims(x, 2, five, 3, 2) ||
        !raise_same_dims(x, 0, value, 0, 1) || !raise_same_dims(x, 2, value, 2, 1) ||
        raise_dim(value, 1) != raise_dim(five, 1) * raise_dim(five, 2) || !raise_dim(value, 1) ||
        raise_dim(value, 3) != raise_dim(x, 3))
        return raise_stopped(r, expand, "it does not repeat heads [B,h,T,D] -> [B,h*n,T,D]"), NULL;
    return x;
}

static bool along_rows(const ir_node *concat) {
    const int64_t axis = ir_attr_int(concat, "axis");
    return axis == 2 || axis == -2;
}

const ir_node *raise_past_concat(const ir_value *value) {
    const ir_node *concat = raise_maker(value, "Concat");
    const ir_value *past = concat ? raise_through_cast(ir_node_input(concat, 0)) : NULL;
    return past && !past->def && !past->constant && past->type.rank == 4 && concat->n_inputs == 2
               ? concat
               : NULL;
}

/* The node between the Concat of a past and the value, for a report: the last one that is not a
 * Reshape or Unsqueeze, if there is one. NULL: the value does not come from a past. */
static const ir_node *after_past(const ir_value *value) {
    enum { MOST = 6 };
    const ir_node *first = NULL;
    for (int i = 0; i < MOST && value && value->def && !raise_past_concat(value); i++) {
        const bool shapes = op_is(value->def, "", "Reshape") || op_is(value->def, "", "Unsqueeze");
        if (!first || (op_is(first, "", "Reshape") && !shapes))
            first = value->def;
        value = ir_node_input(value->def, 0);
    }
    return value && raise_past_concat(value) ? first : NULL;
}

bool raise_read_operand(raise *r, ir_value *value, attention_operand *o) {
    ir_value *x = raise_unrepeated(r, value);
    const ir_node *concat = x ? raise_past_concat(x) : NULL;
    if (!x)
        return false;
    o->rows = x;
    if (!concat && after_past(x))
        return raise_stopped(r, after_past(x), "it is between a past and its attention");
    if (concat) {
        if (!along_rows(concat))
            return raise_stopped(r, concat, "the new rows are not appended to the past");
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

/* Returns x [B,H,T,D] if the value [B,H,D,T] is x with its last axes swapped as [B*H,T,D] ->
 * [B*H,D,T]. */
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
    const bool same = raise_same_dims(x, 2, inner->outputs[0], 1, 2) &&
                      raise_same_dims(x, 0, value, 0, 2) && raise_same_dims(x, 2, value, 3, 1) &&
                      raise_same_dims(x, 3, value, 2, 1);
    return same ? x : NULL;
}

ir_value *raise_untransposed_key(raise *r, ir_value *value, double *scale) {
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
