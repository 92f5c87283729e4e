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

/* Is it >= 0 wherever an element is? It is linear in each coordinate, or this says no. */
bool raise_holds_everywhere(const reader *e, const ir_dim *d);
/* Index of an operand that is broadcast to rank dims of the result. */
bool raise_broadcast(const reader *e, const ir_value *x, const ir_dim *const *index, int rank,
                     const ir_dim **to);
/* Index of x where y has the same elements in other dims. */
bool raise_reshaped(const reader *e, const ir_type *x, const ir_type *y, const ir_dim *const *index,
                    const ir_dim **to);
/* Inputs whose lengths are told by what they mean, where keys are the rows of a past with new ones
 * behind: pasts but those of an encoder, and then attention masks. */
void raise_find_pasts(reader *e, const ir_dim *past);
void raise_find_masks(reader *e, const ir_dim *total);

#endif
