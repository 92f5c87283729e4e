/* What does a mask say? Each of its elements is read, not for numbers but for coordinates: batch
 * row b, head h, query row q, key row k. An element of a node is a term over elements of its
 * operands (raise_terms.h), down to constants, lengths and the attention mask. The term of the
 * element that belongs to a score is then compared with what Attention can say. So it does not
 * matter by which ops an exporter builds its masks, only what comes out.
 *
 * Two things are taken from what inputs mean, because shapes do not tell them, where keys are a
 * past with new rows behind: every past but those of an encoder has the same number of rows, and
 * the attention mask has one column of 0 or 1 for each of past and new. In a sequence (`unpad`) it
 * is 1 everywhere. Other inputs named so (encoder_attention_mask) are only known to be 0 or 1. */
#include "passes/raise_index.h"

#include <math.h>
#include <string.h>

#include "ops/shared.h"

enum { MOST_DEPTH = 100, MOST_STEPS = 20000 };

static bool element(reader *e, ir_value *value, const ir_dim *const *index, term *out);

/* ---- ops ----------------------------------------------------------------- */

static bool operand(reader *e, ir_node *node, int i, const ir_dim *const *index, term *out) {
    const ir_dim *to[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, i);
    return x && raise_broadcast(e, x, index, node->outputs[0]->type.rank, to) &&
           element(e, x, to, out);
}

static bool scalar(reader *e, const ir_node *node, int i, const ir_dim **out) {
    if (op_elements(node, i, 1, out) != 1)
        return false;
    *out = settled(e, *out);
    return *out != NULL;
}

static bool read_copy(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    return operand(e, node, 0, index, out);
}

/* Does a number stay what it is as an integer of that type? */
static bool is_whole(double x, gqac_dtype to) {
    return x == trunc(x) && fabs(x) <= (to == GQAC_I32 ? 0x1p31 - 1 : 0x1p53);
}

static bool read_cast(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const gqac_dtype to = node->outputs[0]->type.dtype;
    if (!operand(e, node, 0, index, out))
        return false;
    if (to == GQAC_BOOL) {
        term_truth truth;
        if (!term_as_truth(e->dims, out, &truth))
            return false;
        *out = term_of_truth(truth);
    } else if (out->kind == TERM_TRUTH) {
        out->kind = TERM_CHOICE;
    } else if (out->kind == TERM_CHOICE && OP_IN(OP_INDICES, to)) {
        return is_whole(out->yes, to) && is_whole(out->no, to);
    } else if ((out->kind == TERM_SUM || out->kind == TERM_BIAS) && !OP_IN(OP_FLOATS, to)) {
        return false;
    }
    return OP_IN(OP_INDICES | OP_FLOATS | OP_BIT(BOOL), to);
}

static bool read_reshape(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *to[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, 0);
    return x->type.rank >= 0 && raise_reshaped(e, &x->type, &node->outputs[0]->type, index, to) &&
           element(e, x, to, out);
}

static bool read_transpose(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_attr *perm = ir_attr_get(node, "perm");
    const ir_dim *to[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, 0);
    if (!perm->set || (int)perm->count != x->type.rank)
        return false;
    for (int i = 0; i < x->type.rank; i++)
        to[perm->ints[i]] = index[i];
    return element(e, x, to, out);
}

static bool read_range(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *start, *step;
    if (!scalar(e, node, 0, &start) || !scalar(e, node, 2, &step))
        return false;
    *out = term_of_int(ir_dim_add(e->dims, start, ir_dim_mul(e->dims, step, index[0])));
    return out->number != NULL;
}

static bool read_slice(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *starts[GQAC_MAX_RANK], *to[GQAC_MAX_RANK];
    int64_t axes[GQAC_MAX_RANK], steps[GQAC_MAX_RANK], n, n_axes;
    ir_value *x = ir_node_input(node, 0);
    const int rank = x->type.rank;
    n = op_elements(node, 1, GQAC_MAX_RANK, starts);
    if (rank < 0 || n < 0 || !ir_const_ints(ir_node_input(node, 3), GQAC_MAX_RANK, axes, &n_axes) ||
        n_axes != n)
        return false;
    if (ir_node_input(node, 4) &&
        !ir_const_ints(ir_node_input(node, 4), GQAC_MAX_RANK, steps, &n_axes))
        return false;
    memcpy(to, index, (size_t)rank * sizeof *to);
    for (int64_t i = 0; i < n; i++) {
        const int64_t axis = axes[i] + (axes[i] < 0 ? rank : 0);
        const ir_dim *start = axis < 0 || axis >= rank
                                  ? NULL
                                  : raise_place(e, settled(e, starts[i]), x->type.dims[axis]);
        if ((ir_node_input(node, 4) && steps[i] != 1) || !start)
            return false;
        to[axis] = ir_dim_add(e->dims, to[axis], start);
    }
    return element(e, x, to, out);
}

/* Integers that lie in another tensor. */
static bool index_of(reader *e, ir_value *indices, const ir_dim *const *at, const ir_dim **out) {
    term found;
    if (!element(e, indices, at, &found) || found.kind != TERM_INT ||
        !raise_holds_everywhere(e, found.number))
        return false;
    *out = found.number;
    return true;
}

static bool read_gather(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *to[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, 0), *indices = ir_node_input(node, 1);
    const int rank = x->type.rank, inner = indices->type.rank;
    int64_t axis = ir_attr_int(node, "axis");
    axis += axis < 0 ? rank : 0;
    if (rank < 1 || inner < 0 || axis < 0 || axis >= rank)
        return false;
    for (int i = 0; i < rank; i++)
        if (i != axis)
            to[i] = index[i < axis ? i : i + inner - 1];
    return index_of(e, indices, index + axis, &to[axis]) && element(e, x, to, out);
}

static bool read_gather_nd(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *to[GQAC_MAX_RANK], *at[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, 0), *indices = ir_node_input(node, 1);
    const int rank = x->type.rank, inner = indices->type.rank;
    int64_t n;
    if (ir_attr_int(node, "batch_dims") || inner < 1 || rank < 1 ||
        !ir_dim_is_const(indices->type.dims[inner - 1], &n) || n > rank)
        return false;
    memcpy(at, index, (size_t)(inner - 1) * sizeof *at);
    for (int i = 0; i < rank; i++) {
        at[inner - 1] = number(e, i);
        if (i >= n)
            to[i] = index[inner - 1 + i - n];
        else if (!index_of(e, indices, at, &to[i]))
            return false;
    }
    return element(e, x, to, out);
}

/* Every element is written, each to where it lies in the updates. */
static bool read_scatter_nd(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *at[GQAC_MAX_RANK + 1];
    ir_value *x = ir_node_input(node, 0), *indices = ir_node_input(node, 1);
    ir_value *updates = ir_node_input(node, 2);
    const int rank = x->type.rank;
    term found;
    if (rank < 1 || rank >= GQAC_MAX_RANK || updates->type.rank != rank ||
        indices->type.rank != rank + 1 || strcmp(ir_attr_get(node, "reduction")->s, "none") != 0)
        return false;
    memcpy(at, index, (size_t)rank * sizeof *at);
    for (int i = 0; i < rank; i++) {
        const ir_dim *dim = x->type.dims[i] ? settled(e, x->type.dims[i]) : NULL;
        bool any = dim && is_one(dim); /* index[i] stands for every place there is */
        for (int k = 0; k < COORDINATES && !any; k++)
            any = dim && index[i] == e->at[k] && settled(e, e->length[k]) == dim;
        at[rank] = number(e, i);
        if (!any || !updates->type.dims[i] || settled(e, updates->type.dims[i]) != dim ||
            !element(e, indices, at, &found) || found.kind != TERM_INT ||
            found.number != (is_one(dim) ? number(e, 0) : index[i]))
            return false;
    }
    return element(e, updates, index, out);
}

/* Which part, when that is sure. */
static bool read_concat(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *to[GQAC_MAX_RANK];
    const int rank = node->outputs[0]->type.rank;
    int64_t axis = ir_attr_int(node, "axis"), at, n;
    axis += axis < 0 ? rank : 0;
    if (axis < 0 || axis >= rank || !ir_dim_is_const(index[axis], &at))
        return false;
    memcpy(to, index, (size_t)rank * sizeof *to);
    for (int i = 0; i < node->n_inputs; i++, at -= n) {
        ir_value *x = ir_node_input(node, i);
        if (x->type.rank != rank || !ir_dim_is_const(x->type.dims[axis], &n))
            return false;
        to[axis] = number(e, at);
        if (at < n)
            return element(e, x, to, out);
    }
    return false;
}

static bool read_where(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    term when, a, b;
    if (!operand(e, node, 0, index, &when) || when.kind != TERM_TRUTH)
        return false;
    if (term_is_sure(&when.when))
        return operand(e, node, when.when.negated ? 2 : 1, index, out);
    return operand(e, node, 1, index, &a) && operand(e, node, 2, index, &b) &&
           term_pick(e->dims, &when.when, &a, &b, out);
}

static bool read_arithmetic(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const char *name = node->op->name;
    const char op = name[0] == 'A' ? '+' : name[0] == 'S' ? '-' : '*';
    term a, b;
    return operand(e, node, 0, index, &a) && operand(e, node, 1, index, &b) &&
           term_arithmetic(e->dims, op, &a, &b, out);
}

static bool read_neg(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const term zero = term_of_int(number(e, 0));
    term a;
    return operand(e, node, 0, index, &a) && term_arithmetic(e->dims, '-', &zero, &a, out);
}

static bool read_compare(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const char *name = node->op->name;
    const bool greater = name[0] == 'G', equal = strstr(name, "OrEqual") != NULL;
    term a, b;
    term_truth truth;
    if (!operand(e, node, greater, index, &a) || !operand(e, node, !greater, index, &b) ||
        !term_compare(e->dims,
                      name[0] == 'E' ? '='
                      : equal        ? '['
                                     : '<',
                      &a, &b, &truth))
        return false;
    *out = term_of_truth(truth);
    return true;
}

static bool read_logic(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    term a, b;
    term_truth truth;
    if (!operand(e, node, 0, index, &a) || a.kind != TERM_TRUTH)
        return false;
    truth = a.when;
    if (node->op->name[0] == 'N') {
        if (!term_negate(e->dims, &truth))
            return false;
    } else {
        if (!operand(e, node, 1, index, &b) || b.kind != TERM_TRUTH)
            return false;
        if (!(node->op->name[0] == 'A' ? term_and(e->dims, &a.when, &b.when, &truth)
                                       : term_or(e->dims, &a.when, &b.when, &truth)))
            return false;
    }
    *out = term_of_truth(truth);
    return true;
}

static bool read_constant_of_shape(reader *e, ir_node *node, const ir_dim *const *index,
                                   term *out) {
    const gqac_tensor *t = ir_attr_get(node, "value")->tensor;
    (void)e;
    (void)index;
    if (t && t->dtype == GQAC_BOOL)
        *out = term_of_truth((term_truth){.negated = !op_get_i64(t, 0)});
    else if (!t || OP_IN(OP_FLOATS, t->dtype))
        *out = term_number(t ? (double)op_get_f32(t, 0) : 0);
    else if (OP_IN(OP_INDICES, t->dtype))
        *out = term_of_int(number(e, op_get_i64(t, 0)));
    else
        return false;
    return true;
}

/* The lower part keeps j <= i + k, the upper j >= i + k; the rest is 0. */
static bool read_trilu(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const int rank = node->outputs[0]->type.rank;
    const ir_dim *k = number(e, 0);
    term kept, zero = term_number(0);
    if (rank < 2 || (ir_node_input(node, 1) && !scalar(e, node, 1, &k)) ||
        !operand(e, node, 0, index, &kept))
        return false;
    const ir_dim *d = ir_dim_sub(e->dims, ir_dim_add(e->dims, index[rank - 2], k), index[rank - 1]);
    if (ir_attr_int(node, "upper"))
        d = ir_dim_sub(e->dims, number(e, 0), d);
    if (!d)
        return false;
    if (kept.kind == TERM_TRUTH)
        zero = term_of_truth((term_truth){.negated = true});
    const term_truth inside = term_at_least_0(d);
    return term_pick(e->dims, &inside, &kept, &zero, out);
}

static bool is_number_one(const term *t) {
    int64_t n;
    if (t->kind == TERM_INT)
        return ir_dim_is_const(t->number, &n) && n == 1;
    if (t->kind == TERM_BIAS)
        return false;
    return term_is_sure(&t->when) && (t->when.negated ? t->no : t->yes) == 1;
}

/* Sums of ones along an axis are places, counted from 1. */
static bool read_cum_sum(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *at[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, 0);
    int64_t axis, n;
    if (!ir_const_ints(ir_node_input(node, 1), 1, &axis, &n) || n != 1 ||
        ir_attr_int(node, "exclusive") || ir_attr_int(node, "reverse"))
        return false;
    axis += axis < 0 ? x->type.rank : 0;
    if (axis < 0 || axis >= x->type.rank || settled(e, x->type.dims[axis]) != e->length[K])
        return false;
    memcpy(at, index, (size_t)x->type.rank * sizeof *at);
    at[axis] = e->at[K]; /* any key */
    if (!element(e, x, at, out) || !is_number_one(out))
        return false;
    *out = term_of_int(ir_dim_add(e->dims, index[axis], number(e, 1)));
    return out->number != NULL;
}

static const struct {
    const char *op;
    bool (*read)(reader *e, ir_node *node, const ir_dim *const *index, term *out);
} ops[] = {
    {"Add", read_arithmetic},
    {"And", read_logic},
    {"Cast", read_cast},
    {"Concat", read_concat},
    {"CumSum", read_cum_sum},
    {"Equal", read_compare},
    {"Expand", read_copy},
    {"Flatten", read_reshape},
    {"Gather", read_gather},
    {"GatherND", read_gather_nd},
    {"Greater", read_compare},
    {"GreaterOrEqual", read_compare},
    {"Identity", read_copy},
    {"Less", read_compare},
    {"LessOrEqual", read_compare},
    {"Mul", read_arithmetic},
    {"Neg", read_neg},
    {"Not", read_logic},
    {"Or", read_logic},
    {"Range", read_range},
    {"Reshape", read_reshape},
    {"ScatterND", read_scatter_nd},
    {"Slice", read_slice},
    {"Squeeze", read_reshape},
    {"Sub", read_arithmetic},
    {"Transpose", read_transpose},
    {"Trilu", read_trilu},
    {"Unsqueeze", read_reshape},
    {"Where", read_where},
    {"ConstantOfShape", read_constant_of_shape},
};

/* ---- one element --------------------------------------------------------- */

/* A table is read as a whole; an element of a mask costs as much as some hundred of its numbers. */
static bool charge(const reader *e, const gqac_tensor *table) {
    const int64_t steps = gqac_tensor_count(table) / 256;
    if (steps > *e->r->steps)
        return false;
    *e->r->steps -= (int)steps;
    return true;
}

/* A constant with a number for each head, or for each head and key. */
static bool read_slopes(const reader *e, const gqac_tensor *t, const ir_dim *const *index,
                        term *out) {
    int heads = -1, keys = -1;
    int64_t n;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] == 1)
            continue;
        if (index[i] == e->at[H] && heads < 0)
            heads = i;
        else if (keys < 0)
            keys = i;
        else
            return false;
    }
    if (heads < 0 || !ir_dim_is_const(e->length[H], &n) || n != t->dims[heads] || !charge(e, t))
        return false;
    float *slopes = GQAC_ARENA_ARRAY(e->r->context->module->arena, float, (size_t)n);
    if (!slopes)
        e->r->b.status = gqac_diag_oom(e->r->b.diag, "slopes");
    return slopes &&
           term_of_slopes(e->dims, t, heads, keys, keys < 0 ? NULL : index[keys], slopes, out);
}

/* A constant that is the same everywhere, or whose place is sure, a bias of heads, a triangle. */
static bool read_constant(const reader *e, const ir_value *value, const ir_dim *const *index,
                          term *out) {
    const gqac_tensor *t = pass_constant(value);
    int64_t flat = 0, at;
    if (!t || !gqac_tensor_count(t))
        return false;
    for (int i = 0; i < t->rank && gqac_tensor_count(t) > 1; i++) {
        if (!ir_dim_is_const(index[i], &at) || at < 0 || at >= t->dims[i])
            return t->dtype == GQAC_BOOL
                       ? t->rank >= 2 && charge(e, t) &&
                             term_of_triangle(e->dims, t, index[t->rank - 2], index[t->rank - 1],
                                              out)
                       : OP_IN(OP_FLOATS, t->dtype) && read_slopes(e, t, index, out);
        flat = flat * t->dims[i] + at;
    }
    if (t->dtype == GQAC_BOOL)
        *out = term_of_truth((term_truth){.negated = !op_get_i64(t, flat)});
    else if (OP_IN(OP_FLOATS, t->dtype))
        *out = term_number((double)op_get_f32(t, flat));
    else if (OP_IN(OP_INDICES, t->dtype))
        *out = term_of_int(number(e, op_get_i64(t, flat)));
    else
        return false;
    return true;
}

/* Is it 0 or 1 by what it means? That of an encoder is, too. */
static bool is_padding(const reader *e, const ir_value *value) {
    return !value->def && !value->constant && value->graph == e->graph && value->type.rank == 2 &&
           strstr(value->name, "attention_mask") &&
           OP_IN(OP_INDICES | OP_BIT(BOOL), value->type.dtype);
}

static bool read_element(reader *e, ir_value *value, const ir_dim *const *index, term *out) {
    int64_t at = 0;
    if (value->constant)
        return read_constant(e, value, index, out);
    if (is_padding(e, value) && e->r->unpadded && pass_is_attention_mask(e->graph, value)) {
        *out = value->type.dtype == GQAC_BOOL ? term_of_truth((term_truth){.n = 0})
                                              : term_of_int(number(e, 1));
        return true;
    }
    if (is_padding(e, value)) {
        const term_truth truth = {.n = 1,
                                  .all = {{.of = value, .row = index[0], .column = index[1]}}};
        *out = term_of_truth(truth);
        if (value->type.dtype != GQAC_BOOL)
            out->kind = TERM_CHOICE;
        return true;
    }
    const bool told = value->elements && value->type.rank >= 0 && value->type.rank < 2 &&
                      (!value->type.rank || ir_dim_is_const(index[0], &at)) && at >= 0 &&
                      at < value->n_elements && value->elements[at];
    if (told && OP_IN(OP_INDICES, value->type.dtype)) {
        *out = term_of_int(settled(e, value->elements[at]));
        return out->number != NULL;
    }
    ir_node *node = value->def;
    if (!node || *node->op->domain || node->n_outputs != 1 || value->type.rank < 0)
        return false;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(ops[i].op, node->op->name))
            return ops[i].read(e, node, index, out);
    return false;
}

static bool element(reader *e, ir_value *value, const ir_dim *const *index, term *out) {
    if (e->depth == MOST_DEPTH || ++e->steps > MOST_STEPS || --*e->r->steps < 0)
        return false;
    e->depth++;
    bool good = read_element(e, value, index, out);
    if (good && out->kind == TERM_BIAS) /* key_bias knows no other rounding */
        good = value->type.dtype == GQAC_F32;
    e->depth--;
    if (!good && value->def)
        raise_stopped(e->r, value->def, "what the mask says cannot be told through it");
    return good;
}

/* ---- what it says -------------------------------------------------------- */

/* One condition: of causality, a window, the attention mask, or none at all. */
static bool say(const reader *e, const term_atom *atom, raise_mask *out) {
    int64_t width;
    if (atom->of) {
        if (atom->zero || atom->row != e->at[B] || atom->column != e->at[K] ||
            settled(e, atom->of->type.dims[1]) != e->length[K] ||
            (out->padding && out->padding != atom->of))
            return false;
        out->padding = atom->of;
        return true;
    }
    if (raise_holds_everywhere(e, atom->least))
        return true;
    const ir_dim *own = ir_dim_add(e->dims, e->cached, e->at[Q]); /* the place of the query */
    const ir_dim *behind = ir_dim_sub(e->dims, own, e->at[K]);
    if (!behind)
        return false;
    if (atom->least == behind) {
        out->causal = true;
        return true;
    }
    /* k - (past + q) + left >= 0 */
    if (!ir_dim_is_const(ir_dim_add(e->dims, atom->least, behind), &width) || width < 0)
        return false;
    out->left = out->left < 0 || width < out->left ? width : out->left;
    return true;
}

/* A number that is added: 0 where a key is seen, else nothing is left of the score. */
static bool is_seen_or_not(const reader *e, const term *found, gqac_dtype dtype, term_truth *seen) {
    double yes = found->when.negated ? found->no : found->yes;
    double no = found->when.negated ? found->yes : found->no;
    *seen = found->when;
    seen->negated = false;
    if (found->kind != TERM_CHOICE && found->kind != TERM_BIAS)
        return false;
    if (yes != 0) {
        const double swap = yes;
        yes = no;
        no = swap;
        if (!seen->n || !term_negate(e->dims, seen))
            return false;
    }
    return yes == 0 && (!seen->n || term_hides(dtype, e->r->behind != 0 ? no * e->r->behind : no));
}

/* Its biases by how far each key is from the first: what is the same for all keys that a query sees
 * is nothing to a softmax. */
static bool say_slopes(const reader *e, const term *found, raise_mask *out) {
    const ir_dim *next = ir_dim_add(e->dims, e->at[K], number(e, 1));
    next = ir_dim_substitute(e->dims, found->number, 1, &e->at[K], &next);
    out->slopes = found->slopes;
    return next && ir_dim_is_const(ir_dim_sub(e->dims, next, found->number), &out->step);
}

static bool read_mask(raise *r, const ir_value *mask, bool hidden, const ir_type *q,
                      const ir_value *past, const ir_dim *keys, raise_mask *out) {
    const ir_node *place = mask->def ? mask->def : r->b.before;
    const ir_dim *to[GQAC_MAX_RANK];
    reader e;
    term found;
    term_truth seen;
    if (!raise_open(&e, r, q, past, keys) || mask->type.rank > 4 ||
        !raise_broadcast(&e, mask, e.at, COORDINATES, to))
        return raise_stopped(r, place, "the shape of the mask is not known");
    if (!element(&e, (ir_value *)(uintptr_t)mask, to, &found))
        return raise_stopped(r, place, "what the mask says is not known");
    seen = found.when;
    if (mask->type.dtype == GQAC_BOOL) {
        if (hidden && !term_negate(e.dims, &seen))
            return raise_stopped(r, place, "the mask hides more than Attention can say");
    } else if (!is_seen_or_not(&e, &found, mask->type.dtype, &seen)) {
        return raise_stopped(r, place,
                             "the mask is not 0 where a key is seen, and the least "
                             "number elsewhere");
    }
    if (seen.negated)
        return raise_stopped(r, place, "the mask hides more than Attention can say");
    for (int i = 0; i < seen.n; i++)
        if (!say(&e, &seen.all[i], out))
            return raise_stopped(r, place, "the mask is neither causal nor that of padding");
    if (found.kind == TERM_BIAS && !say_slopes(&e, &found, out))
        return raise_stopped(r, place, "the bias is not a slope for each head");
    return true;
}

bool raise_read_mask(raise *r, const ir_value *mask, bool hidden, const ir_type *q,
                     const ir_value *past, const ir_dim *keys, raise_mask *out) {
    const raise_unread now = {.mask = mask,
                              .hidden = hidden,
                              .past = past ? past->type.rank : -2,
                              .asked = {q->dims[0], q->dims[1], q->dims[2], keys,
                                        past && past->type.rank == 4 ? past->type.dims[2] : NULL}};
    raise_unread *last = &r->unread[r->unpadded];
    const ir_node *stop = r->stop;
    const char *why = r->why;
    if (last->mask == mask && last->hidden == hidden && last->past == now.past &&
        !memcmp(last->asked, now.asked, sizeof now.asked))
        return raise_stopped(r, last->stop ? last->stop : r->b.before, last->why);
    r->stop = NULL;
    const bool good = read_mask(r, mask, hidden, q, past, keys, out);
    if (!good) {
        *last = now;
        last->stop = r->stop == r->b.before ? NULL : r->stop;
        last->why = r->why;
    }
    if (stop) { /* the first one stays */
        r->stop = stop;
        r->why = why;
    }
    return good;
}
