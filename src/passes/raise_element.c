/* Elements of masks as terms in their coordinates (raise_terms.h), op by op, down to constants,
 * lengths and the attention mask; raise_mask.c reads the result. */
#include "passes/raise_index.h"

#include <math.h>
#include <string.h>

#include "ops/shared.h"

enum { MOST_DEPTH = 100, MOST_STEPS = 20000 };

/* ---- ops ----------------------------------------------------------------- */

/* For a result whose length is not known: true if operand x has that length. The other operands
 * have the same length along that axis, or 1. */
static bool is_long(const reader *e, const ir_node *node, const ir_value *x, int axis) {
    const int rank = node->outputs[0]->type.rank;
    const int own = axis - (rank - x->type.rank);
    const ir_dim *length = raise_comparable(e, x->type.dims[own]);
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *y = ir_node_input(node, i);
        const int at = y ? axis - (rank - y->type.rank) : -1;
        if (!y || y == x || (y->type.rank >= 0 && at < 0))
            continue;
        const ir_dim *other = y->type.rank > 0 ? raise_comparable(e, y->type.dims[at]) : NULL;
        if (!other || (other != length && !is_one(other)))
            return false;
    }
    return true;
}

static bool operand(reader *e, ir_node *node, int i, const ir_dim *const *index, term *out) {
    const ir_type *type = &node->outputs[0]->type;
    const ir_dim *to[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, i);
    if (!x || x->type.rank < 0 || type->rank < x->type.rank)
        return false;
    for (int k = 0; k < x->type.rank; k++) {
        const int axis = type->rank - x->type.rank + k;
        const ir_dim *length = raise_comparable(e, x->type.dims[k]);
        if (!type->dims[axis] && !(length && is_one(length)) && !is_long(e, node, x, axis))
            return false;
        to[k] =
            length && is_one(length) ? number(e, 0) : raise_column(e, x->type.dims[k], index[axis]);
    }
    return raise_element(e, x, to, out);
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

/* A Tile that repeats axes of length 1, as an Expand does. */
static bool read_tile(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_type *x = &ir_node_input(node, 0)->type, *y = &node->outputs[0]->type;
    for (int i = 0; i < x->rank; i++)
        if (!x->dims[i] || (!is_one(x->dims[i]) && x->dims[i] != y->dims[i]))
            return false;
    return operand(e, node, 0, index, out);
}

/* True if the conversion to that integer type keeps the number. */
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
           raise_element(e, x, to, out);
}

static bool read_transpose(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_attr *perm = ir_attr_get(node, "perm");
    const ir_dim *to[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, 0);
    if (!perm->set || (int)perm->count != x->type.rank)
        return false;
    for (int i = 0; i < x->type.rank; i++)
        to[perm->ints[i]] = index[i];
    return raise_element(e, x, to, out);
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
                                  : raise_slice_start(e, settled(e, starts[i]), x->type.dims[axis]);
        if ((ir_node_input(node, 4) && steps[i] != 1) || !start)
            return false;
        to[axis] = ir_dim_add(e->dims, to[axis], start);
    }
    return raise_element(e, x, to, out);
}

/* Reads an index from another tensor. */
static bool index_of(reader *e, ir_value *indices, const ir_dim *const *at, const ir_dim **out) {
    term found;
    if (!raise_element(e, indices, at, &found) || found.kind != TERM_INT ||
        !raise_holds_everywhere(e, found.number))
        return false;
    *out = found.number;
    return true;
}

static bool read_gather(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *to[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, 0), *indices = ir_node_input(node, 1);
    const int rank = x->type.rank, inner = indices->type.rank;
    const int64_t axis = pass_axis(node, rank);
    if (rank < 1 || inner < 0 || axis < 0 || axis >= rank)
        return false;
    for (int i = 0; i < rank; i++)
        if (i != axis)
            to[i] = index[i < axis ? i : i + inner - 1];
    return index_of(e, indices, index + axis, &to[axis]) && raise_element(e, x, to, out);
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
    return raise_element(e, x, to, out);
}

/* Reads a ScatterND that writes every element, each with the update of the same index. */
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
        bool any = dim && is_one(dim); /* index[i] is a variable for the whole axis */
        for (int k = 0; k < COORDINATES && !any; k++)
            any = dim && index[i] == e->at[k] && settled(e, e->length[k]) == dim;
        at[rank] = number(e, i);
        if (!any || !updates->type.dims[i] || settled(e, updates->type.dims[i]) != dim ||
            !raise_element(e, indices, at, &found) || found.kind != TERM_INT ||
            found.number != (is_one(dim) ? number(e, 0) : index[i]))
            return false;
    }
    return raise_element(e, updates, index, out);
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

/* By a constant. */
static bool read_div(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    term a, b;
    return OP_IN(OP_FLOATS, node->outputs[0]->type.dtype) && operand(e, node, 0, index, &a) &&
           operand(e, node, 1, index, &b) && term_invert(&b) &&
           term_arithmetic(e->dims, '*', &a, &b, out);
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

/* The lower part is j <= i + k, the upper j >= i + k; elsewhere it is 0. */
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

/* A term that is the same number at every element. */
static bool is_constant(const term *t, double *x) {
    int64_t n;
    if (t->kind == TERM_INT && ir_dim_is_const(t->number, &n)) {
        *x = (double)n;
        return true;
    }
    if ((t->kind != TERM_CHOICE && t->kind != TERM_TRUTH) || !term_is_sure(&t->when))
        return false;
    *x = t->when.negated ? t->no : t->yes;
    return true;
}

static bool is_number(const term *t, double wanted) {
    double x;
    return is_constant(t, &x) && x == wanted;
}

/* The larger or smaller of one of two numbers and a constant. */
static bool read_extreme(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    double (*const pick)(double, double) = op_is(node, "", "Max") ? fmax : fmin;
    term other;
    double x;
    if (node->n_inputs != 2 || !operand(e, node, 0, index, out) ||
        !operand(e, node, 1, index, &other))
        return false;
    if (!is_constant(&other, &x)) {
        const term first = *out;
        *out = other;
        other = first;
    }
    if (!is_constant(&other, &x) || out->kind != TERM_CHOICE)
        return false;
    out->yes = pick(out->yes, x);
    out->no = pick(out->no, x);
    return true;
}

/* A sum of ones along an axis is its length. */
static bool read_sum(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *at[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, 0);
    int64_t axis, n;
    if (!ir_const_ints(ir_node_input(node, 1), 1, &axis, &n) || n != 1)
        return false;
    axis += axis < 0 ? x->type.rank : 0;
    if (axis < 0 || axis >= x->type.rank || !OP_IN(OP_INDICES | OP_BIT(F32), x->type.dtype))
        return false;
    const int kept = ir_attr_int(node, "keepdims") != 0;
    for (int i = 0; i < x->type.rank; i++)
        at[i] = i == axis ? raise_any_index(e) : index[i > axis && !kept ? i - 1 : i];
    if (!raise_element(e, x, at, out) || !is_number(out, 1) || !x->type.dims[axis])
        return false;
    *out = term_of_int(settled(e, x->type.dims[axis]));
    return out->number != NULL;
}

/* Sums of ones along an axis are positions, counted from 1; those of zeros are 0. In f32 they are
 * exact for more tokens than a sequence can have; in f16 they are not. */
static bool read_cum_sum(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *at[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, 0);
    int64_t axis, n;
    if (!ir_const_ints(ir_node_input(node, 1), 1, &axis, &n) || n != 1 ||
        ir_attr_int(node, "exclusive") || ir_attr_int(node, "reverse"))
        return false;
    axis += axis < 0 ? x->type.rank : 0;
    if (axis < 0 || axis >= x->type.rank)
        return false;
    memcpy(at, index, (size_t)x->type.rank * sizeof *at);
    at[axis] = settled(e, x->type.dims[axis]) == e->length[K] ? e->at[K] : raise_any_index(e);
    if (!raise_element(e, x, at, out))
        return false;
    const bool ones = is_number(out, 1) && OP_IN(OP_INDICES | OP_BIT(F32), x->type.dtype);
    if (!ones && !is_number(out, 0))
        return false;
    *out = term_of_int(ones ? ir_dim_add(e->dims, index[axis], number(e, 1)) : number(e, 0));
    return out->number != NULL;
}

static const struct {
    const char *op;
    bool (*read)(reader *e, ir_node *node, const ir_dim *const *index, term *out);
} ops[] = {
    {"Add", read_arithmetic},
    {"And", read_logic},
    {"Cast", read_cast},
    {"Concat", raise_concat},
    {"CumSum", read_cum_sum},
    {"Div", read_div},
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
    {"Max", read_extreme},
    {"Min", read_extreme},
    {"Mul", read_arithmetic},
    {"Neg", read_neg},
    {"Not", read_logic},
    {"Or", read_logic},
    {"Range", read_range},
    {"ReduceSum", read_sum},
    {"Reshape", read_reshape},
    {"ScatterND", read_scatter_nd},
    {"Slice", read_slice},
    {"Squeeze", read_reshape},
    {"Sub", read_arithmetic},
    {"Tile", read_tile},
    {"Transpose", read_transpose},
    {"Trilu", read_trilu},
    {"Unsqueeze", read_reshape},
    {"Where", read_where},
    {"ConstantOfShape", read_constant_of_shape},
};

/* ---- one element --------------------------------------------------------- */

/* True for a graph input whose meaning is 0 or 1, that of an encoder included. */
static bool is_padding(const reader *e, const ir_value *value) {
    return !value->def && !value->constant && value->graph == e->graph && value->type.rank == 2 &&
           strstr(value->name, "attention_mask") &&
           OP_IN(OP_INDICES | OP_FLOATS | OP_BIT(U8) | OP_BIT(I8) | OP_BIT(BOOL),
                 value->type.dtype);
}

static bool read_element(reader *e, ir_value *value, const ir_dim *const *index, term *out) {
    int64_t at = 0;
    if (value->constant)
        return raise_constant(e, value, index, out);
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
    const bool known = value->elements && value->type.rank >= 0 && value->type.rank < 2 &&
                       (!value->type.rank || ir_dim_is_const(index[0], &at)) && at >= 0 &&
                       at < value->n_elements && value->elements[at];
    if (known && OP_IN(OP_INDICES, value->type.dtype)) {
        *out = term_of_int(settled(e, value->elements[at]));
        return out->number != NULL;
    }
    const ir_dim *first = raise_first_position(e->r);
    if (first && raise_is_first_input(e->r, value)) {
        *out = term_of_int(value->type.rank ? ir_dim_add(e->dims, first, index[0]) : first);
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

bool raise_element(reader *e, ir_value *value, const ir_dim *const *index, term *out) {
    if (e->depth == MOST_DEPTH || ++e->steps > MOST_STEPS || --*e->r->steps < 0)
        return false;
    e->depth++;
    bool good = read_element(e, value, index, out);
    good = good && term_store(out, value->type.dtype);
    e->depth--;
    if (!good && value->def)
        raise_stopped(e->r, value->def, "the mask cannot be read through it");
    return good;
}
