/* Arithmetic of coordinates (see raise_index.h). */
#include "passes/raise_index.h"

#include <stdio.h>
#include <string.h>

#include "ops/shared.h"

bool raise_holds_everywhere(const reader *e, const ir_dim *d) {
    for (int i = 0; i < COORDINATES; i++) {
        const ir_dim *zero = number(e, 0), *one = number(e, 1), *last, *slope, *to;
        last = ir_dim_sub(e->dims, e->length[i], one);
        to = ir_dim_substitute(e->dims, d, 1, &e->at[i], &zero);
        slope = ir_dim_sub(e->dims, ir_dim_substitute(e->dims, d, 1, &e->at[i], &one), to);
        if (!to || !slope || ir_dim_add(e->dims, to, ir_dim_mul(e->dims, e->at[i], slope)) != d)
            return false;
        if (!op_dim_nonneg(e->dims, slope))
            to = op_dim_nonneg(e->dims, ir_dim_sub(e->dims, zero, slope))
                     ? ir_dim_substitute(e->dims, d, 1, &e->at[i], &last)
                     : NULL;
        d = to;
        if (!d)
            return false;
    }
    return op_dim_nonneg(e->dims, d);
}

const ir_dim *raise_comparable(const reader *e, const ir_dim *dim) {
    static const char *const above[] = {"raise.b-1", "raise.h-1", "raise.q-1", "raise.k-1"};
    const char *name;
    dim = dim ? settled(e, dim) : NULL;
    for (int i = 0; i < COORDINATES && dim; i++) {
        const ir_dim *length = e->length[i];
        if (!length || !ir_dim_is_symbol(length, &name))
            continue;
        const ir_dim *by = ir_dim_add(e->dims, ir_dim_symbol(e->dims, above[i]), number(e, 1));
        dim = by ? ir_dim_substitute(e->dims, dim, 1, &length, &by) : NULL;
    }
    return dim;
}

const ir_dim *raise_column(reader *e, const ir_dim *length, const ir_dim *index) {
    const ir_dim *rows = e->length[Q] ? settled(e, e->length[Q]) : NULL;
    if (!e->r->unpadded || index != e->at[K] || !length || !rows || !e->cached ||
        settled(e, length) != rows || e->length[K] == rows ||
        e->length[K] != ir_dim_add(e->dims, e->cached, rows))
        return index;
    e->new_columns = true;
    return ir_dim_sub(e->dims, index, e->cached);
}

const ir_dim *raise_any_index(const reader *e) {
    char name[32];
    (void)snprintf(name, sizeof name, "raise.any%d", e->depth);
    return ir_dim_symbol(e->dims, name);
}

bool raise_broadcast(reader *e, const ir_value *x, const ir_dim *const *index, int rank,
                     const ir_dim **to) {
    for (int i = 0; i < x->type.rank; i++) {
        const ir_dim *dim = x->type.dims[i];
        if (!dim || rank < x->type.rank)
            return false;
        to[i] = is_one(dim) ? number(e, 0) : raise_column(e, dim, index[rank - x->type.rank + i]);
    }
    return x->type.rank >= 0;
}

/* flat = quotient * dim + rest with 0 <= rest < dim; rest depends on some of the coordinates. */
static bool divide(const reader *e, const ir_dim *flat, const ir_dim *dim, const ir_dim **quotient,
                   const ir_dim **rest) {
    const ir_dim *zero = number(e, 0), *one = number(e, 1);
    for (int out = 0; out < 1 << COORDINATES; out++) {
        const ir_dim *part = flat;
        for (int i = 0; i < COORDINATES; i++)
            if (out >> i & 1)
                part = ir_dim_substitute(e->dims, part, 1, &e->at[i], &zero);
        const ir_dim *left = ir_dim_sub(e->dims, ir_dim_sub(e->dims, dim, one), part);
        *rest = part;
        *quotient = ir_dim_div_exact(e->dims, ir_dim_sub(e->dims, flat, part), dim);
        if (*quotient && part && left && raise_holds_everywhere(e, part) &&
            raise_holds_everywhere(e, left))
            return true;
    }
    return false;
}

bool raise_reshaped(const reader *e, const ir_type *x, const ir_type *y, const ir_dim *const *index,
                    const ir_dim **to) {
    const ir_dim *flat = number(e, 0), *left[GQAC_MAX_RANK];
    int n = 0, at = 0, wanted = 0;
    for (int i = 0; i < y->rank; i++) {
        const ir_dim *dim = settled(e, y->dims[i]);
        if (!dim)
            return false;
        flat = ir_dim_add(e->dims, ir_dim_mul(e->dims, flat, dim), index[i]);
        if (!is_one(dim))
            left[n++] = index[i];
    }
    for (int i = 0; i < x->rank; i++) {
        wanted += !is_one(x->dims[i]);
        to[i] = number(e, 0);
    }
    if (n == wanted) { /* only dims of 1 were added or removed */
        for (int i = 0; i < x->rank; i++)
            if (!is_one(x->dims[i]))
                to[i] = left[at++];
        return true;
    }
    for (int i = x->rank - 1; i > 0; i--) {
        const ir_dim *dim = settled(e, x->dims[i]);
        if (!dim || !flat)
            return false;
        if (!is_one(dim) && !divide(e, flat, dim, &flat, &to[i]))
            return false;
    }
    if (x->rank > 0)
        to[0] = flat;
    return flat != NULL;
}

static bool is_zero(void *arg, const char *symbol, int64_t *value) {
    (void)arg;
    (void)symbol;
    *value = 0;
    return true;
}

const ir_dim *raise_slice_start(const reader *e, const ir_dim *start, const ir_dim *length) {
    int64_t n, first;
    if (!start || op_dim_nonneg(e->dims, start))
        return start;
    length = length ? settled(e, length) : NULL;
    const ir_dim *back = ir_dim_sub(e->dims, number(e, 0), start);
    const ir_dim *from_end = length && back ? ir_dim_add(e->dims, start, length) : NULL;
    const bool table = from_end && ir_dim_is_const(length, &n);
    if (!from_end || (!table && !op_dim_nonneg(e->dims, from_end)))
        return NULL;
    bool below = op_dim_nonneg(e->dims, ir_dim_sub(e->dims, back, number(e, 1)));
    for (int i = 0; i < COORDINATES && !below; i++)
        below = e->length[i] == back; /* an element exists, so its length is above 0 */
    if (below)
        return from_end;
    return table && op_dim_nonneg(e->dims, ir_dim_sub(e->dims, length, start)) &&
                   ir_dim_eval(start, is_zero, NULL, &first) && first == n
               ? start
               : NULL;
}

/* ---- lengths that are the same ------------------------------------------- */

static void add_same(reader *e, const ir_dim *length, const ir_dim *by) {
    const char *name;
    if (ir_dim_is_symbol(length, &name) && length != by && e->n_same < MOST_SAME) {
        e->same[e->n_same] = length;
        e->by[e->n_same++] = by;
    }
}

static void find_pasts(reader *e, const ir_dim *past) {
    for (int i = 0; i < e->graph->n_inputs; i++) {
        const ir_value *input = e->graph->inputs[i];
        if (input->type.rank == 4 && pass_is_past(input) && !strstr(input->name, "encoder"))
            add_same(e, input->type.dims[2], past);
    }
}

static void find_masks(reader *e, const ir_dim *total) {
    for (int i = 0; i < e->graph->n_inputs; i++)
        if (pass_is_attention_mask(e->graph, e->graph->inputs[i]))
            add_same(e, e->graph->inputs[i]->type.dims[1], total);
}

bool raise_open(reader *e, raise *r, const ir_type *q, const ir_value *past, const ir_dim *keys) {
    static const char *const names[] = {"raise.b", "raise.h", "raise.q", "raise.k"};
    const bool known = keys && q->dims[0] && q->dims[2] && (!past || past->type.rank == 4);
    *e = (reader){.r = r, .dims = r->context->module->dims, .graph = r->context->module->graph};
    e->cached = known && past ? past->type.dims[2] : number(e, 0);
    if (!past && raise_first_position(r))
        e->cached = raise_first_position(r);
    const ir_dim *total = known && e->cached ? ir_dim_add(e->dims, e->cached, q->dims[2]) : NULL;
    if (total && past)
        find_pasts(e, e->cached);
    if (total && settled(e, keys) == total)
        find_masks(e, total);
    for (int i = 0; i < COORDINATES; i++) {
        e->at[i] = ir_dim_symbol(e->dims, names[i]);
        e->length[i] = i < K || !total ? q->dims[i] : settled(e, keys);
    }
    return total != NULL;
}

bool raise_mask_fits(raise *r, const ir_type *mask, const ir_type *q, const ir_value *past,
                     const ir_dim *keys, bool *narrow) {
    reader e;
    int64_t n;
    raise_open(&e, r, q, past, keys);
    const ir_dim *column = mask->rank >= 1 ? mask->dims[mask->rank - 1] : NULL;
    const ir_dim *row = mask->rank >= 2 ? mask->dims[mask->rank - 2] : number(&e, 1);
    *narrow = !column || !keys || settled(&e, column) != settled(&e, keys);
    if (*narrow && ir_dim_is_const(column, &n))
        *narrow = n == 1;
    return row && mask->rank >= 1 && mask->rank <= COORDINATES &&
           (is_one(row) || (q->dims[2] && settled(&e, row) == settled(&e, q->dims[2])));
}
