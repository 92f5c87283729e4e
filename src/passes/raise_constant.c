/* Elements of constant tables as terms (raise_index.h). */
#include "ops/shared.h"
#include "passes/raise_index.h"

/* Counts the cost of reading a whole table: 256 numbers cost as much as one element of a mask. */
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

/* A constant that counts 0, 1, 2, ... along its only axis; the index is a variable. */
static bool read_counted(const reader *e, const gqac_tensor *t, const ir_dim *const *index,
                         term *out) {
    int axis = -1;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] != 1 && axis >= 0)
            return false;
        axis = t->dims[i] != 1 ? i : axis;
    }
    if (axis < 0 || !charge(e, t))
        return false;
    for (int64_t i = 0; i < t->dims[axis]; i++)
        if (op_get_i64(t, i) != i)
            return false;
    *out = term_of_int(index[axis]);
    return true;
}

bool raise_constant(const reader *e, const ir_value *value, const ir_dim *const *index, term *out) {
    const gqac_tensor *t = pass_constant(value);
    int64_t flat = 0, at;
    if (!t || !gqac_tensor_count(t))
        return false;
    for (int i = 0; i < t->rank && gqac_tensor_count(t) > 1; i++) {
        if (!ir_dim_is_const(index[i], &at) || at < 0 || at >= t->dims[i])
            return t->dtype == GQAC_BOOL ? t->rank >= 2 && charge(e, t) &&
                                               term_of_triangle(e->dims, t, index[t->rank - 2],
                                                                index[t->rank - 1], out)
                   : OP_IN(OP_INDICES, t->dtype)
                       ? read_counted(e, t, index, out)
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
