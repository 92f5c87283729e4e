/* The element of a Concat as a term (see raise_index.h): a series, or one condition for each part.
 */
#include "passes/raise_index.h"

#include <string.h>

enum { MOST_PARTS = 4 };

/* Reads element `place` of part i of a Concat as an integer. */
static bool whole_of(reader *e, ir_node *node, int i, const ir_dim *const *index, int axis,
                     const ir_dim *place, const ir_dim **out) {
    const ir_dim *to[GQAC_MAX_RANK];
    ir_value *x = ir_node_input(node, i);
    term found;
    memcpy(to, index, (size_t)node->outputs[0]->type.rank * sizeof *to);
    to[axis] = place;
    if (!place || x->type.rank != node->outputs[0]->type.rank || !raise_element(e, x, to, &found) ||
        found.kind != TERM_INT)
        return false;
    *out = found.number;
    return true;
}

static bool is_short(const reader *e, const ir_value *part, int axis, int64_t *n) {
    enum { MOST = 8 };
    const ir_dim *length =
        part->type.rank > axis ? raise_comparable(e, part->type.dims[axis]) : NULL;
    return length && ir_dim_is_const(length, n) && *n <= MOST;
}

/* Reads a Concat of integers whose parts all continue one polynomial in the index, so that it does
 * not matter in which part the element lies. Long parts are compared as polynomials, short ones
 * number by number.
 */
static bool read_series(reader *e, ir_node *node, const ir_dim *const *index, int axis,
                        const ir_dim **out) {
    const ir_dim *any = raise_any_index(e), *zero = number(e, 0), *whole = NULL, *one;
    int64_t n;
    for (int pass = 0; pass < 2; pass++) {
        const ir_dim *at = zero;
        for (int i = 0; i < node->n_inputs; i++) {
            const ir_value *x = ir_node_input(node, i);
            const bool few = is_short(e, x, axis, &n);
            if (!pass && !few) {
                if (!whole_of(e, node, i, index, axis, ir_dim_sub(e->dims, any, at), &one) ||
                    (whole && whole != one))
                    return false;
                whole = one;
            }
            for (int64_t k = 0; pass && few && k < n; k++) {
                const ir_dim *place = ir_dim_add(e->dims, at, number(e, k));
                if (!place || !whole_of(e, node, i, index, axis, number(e, k), &one) ||
                    ir_dim_substitute(e->dims, whole, 1, &any, &place) != one)
                    return false;
            }
            const ir_dim *length = few                   ? number(e, n)
                                   : x->type.rank > axis ? settled(e, x->type.dims[axis])
                                                         : NULL;
            if (!length)
                return false;
            at = ir_dim_add(e->dims, at, length);
            if (!at)
                return false;
        }
        if (!whole)
            return false;
    }
    *out = ir_dim_substitute(e->dims, whole, 1, &any, &index[axis]);
    return *out != NULL;
}

/* Reads the part in which the element lies, by a condition on its index for each part but the last.
 */
static bool read_parts(reader *e, ir_node *node, const ir_dim *const *index, int axis, term *out) {
    const ir_dim *to[GQAC_MAX_RANK], *end[MOST_PARTS] = {number(e, 0)};
    const int rank = node->outputs[0]->type.rank, n = node->n_inputs;
    if (n >= MOST_PARTS)
        return false;
    for (int i = 0; i < n; i++) {
        const ir_type *x = &ir_node_input(node, i)->type;
        if (x->rank != rank || (i + 1 < n && !x->dims[axis]))
            return false;
        end[i + 1] = i + 1 < n ? ir_dim_add(e->dims, end[i], settled(e, x->dims[axis])) : NULL;
    }
    memcpy(to, index, (size_t)rank * sizeof *to);
    for (int i = n - 1; i >= 0; i--) {
        term part, rest;
        to[axis] = ir_dim_sub(e->dims, index[axis], end[i]);
        if (!to[axis] || !raise_element(e, ir_node_input(node, i), to, &part))
            return false;
        if (i + 1 < n) {
            const ir_dim *last = ir_dim_sub(e->dims, end[i + 1], number(e, 1));
            const ir_dim *left = ir_dim_sub(e->dims, last, index[axis]);
            if (!left)
                return false;
            const term_truth here = term_at_least_0(left);
            rest = *out;
            if (!term_pick(e->dims, &here, &part, &rest, out))
                return false;
        } else {
            *out = part;
        }
    }
    return n > 0;
}

/* An index that is not constant: a series, or one condition for each part. */
static bool read_anywhere(reader *e, ir_node *node, const ir_dim *const *index, int axis,
                          term *out) {
    const ir_dim *whole;
    const ir_node *stop = e->r->stop;
    const char *why = e->r->why;
    if (read_series(e, node, index, axis, &whole)) {
        *out = term_of_int(whole);
        return true;
    }
    e->r->stop = stop;
    e->r->why = why;
    return read_parts(e, node, index, axis, out);
}

/* Reads the part that holds the element, if its index is constant. */
bool raise_concat(reader *e, ir_node *node, const ir_dim *const *index, term *out) {
    const ir_dim *to[GQAC_MAX_RANK];
    const int rank = node->outputs[0]->type.rank;
    const int64_t axis = pass_axis(node, rank);
    int64_t at, n;
    if (axis < 0 || axis >= rank)
        return false;
    if (!ir_dim_is_const(index[axis], &at))
        return read_anywhere(e, node, index, (int)axis, out);
    memcpy(to, index, (size_t)rank * sizeof *to);
    for (int i = 0; i < node->n_inputs; i++, at -= n) {
        ir_value *x = ir_node_input(node, i);
        if (x->type.rank != rank || !ir_dim_is_const(x->type.dims[axis], &n))
            return false;
        to[axis] = number(e, at);
        if (at < n)
            return raise_element(e, x, to, out);
    }
    return false;
}
