/* Where the elements of a mask lie: the coordinates of one element of a value, as polynomials, and
 * those of the element of an operand that it is made of. */
#ifndef GQAC_PASSES_RAISE_INDEX_H
#define GQAC_PASSES_RAISE_INDEX_H

#include "passes/raise_terms.h"

enum { B, H, Q, K, COORDINATES, MOST_SAME = 128 };

typedef struct reader {
    raise *r;
    ir_dims *dims;
    const ir_graph *graph;
    const ir_dim *at[COORDINATES], *length[COORDINATES]; /* 0 <= at < length */
    int n_same; /* lengths that are the same by what inputs mean */
    const ir_dim *same[MOST_SAME], *by[MOST_SAME];
    const ir_dim *cached; /* rows of the past; NULL: not known */
    int depth, steps;
} reader;

static inline const ir_dim *number(const reader *e, int64_t value) {
    return ir_dim_const(e->dims, value);
}

/* With one name for each length. */
static inline const ir_dim *settled(const reader *e, const ir_dim *dim) {
    return e->n_same ? ir_dim_substitute(e->dims, dim, e->n_same, e->same, e->by) : dim;
}

static inline bool is_one(const ir_dim *dim) {
    int64_t n;
    return ir_dim_is_const(dim, &n) && n == 1;
}

/* The same length in every call that has an element, in which no length of scores is 0: written in
 * what these are above 1, so that what a Slice leaves of them may be a constant. For comparisons.
 */
const ir_dim *raise_told(const reader *e, const ir_dim *dim);
/* Is it >= 0 wherever an element is? It is linear in each coordinate, or this says no. */
bool raise_holds_everywhere(const reader *e, const ir_dim *d);
/* Index of an operand that is broadcast to rank dims of the result. */
bool raise_broadcast(const reader *e, const ir_value *x, const ir_dim *const *index, int rank,
                     const ir_dim **to);
/* Index of x where y has the same elements in other dims. */
bool raise_reshaped(const reader *e, const ir_type *x, const ir_type *y, const ir_dim *const *index,
                    const ir_dim **to);
/* Where a Slice starts, counted from the first element; NULL: that is not sure. Below 0 it is told
 * from the end. The length of a table less what a call asks of it is a place within, because a
 * table is as long as any call asks. */
const ir_dim *raise_place(const reader *e, const ir_dim *start, const ir_dim *length);
/* Names the coordinates of scores [B,H,S,keys]; inputs whose lengths are told by what they mean,
 * where keys are the rows of a past with new ones behind, get one name for them: pasts but those of
 * an encoder, and then attention masks. false: a length is not known. */
bool raise_open(reader *e, raise *r, const ir_type *q, const ir_value *past, const ir_dim *keys);
/* The element of a value there; false: it cannot be said. */
bool raise_element(reader *e, ir_value *value, const ir_dim *const *index, term *out);

#endif
