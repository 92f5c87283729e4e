/* Coordinates, as polynomials, of one element of a mask and of the operand elements from which it
 * is computed. */
#ifndef GQAC_PASSES_RAISE_INDEX_H
#define GQAC_PASSES_RAISE_INDEX_H

#include "passes/raise_terms.h"

enum { B, H, Q, K, COORDINATES, MOST_SAME = 128 };

typedef struct reader {
    raise *r;
    ir_dims *dims;
    const ir_graph *graph;
    const ir_dim *at[COORDINATES], *length[COORDINATES]; /* 0 <= at < length */
    int n_same; /* number of lengths that are equal by the meaning of inputs */
    const ir_dim *same[MOST_SAME], *by[MOST_SAME];
    const ir_dim *cached; /* rows of the past; NULL: not known */
    bool new_columns;     /* the mask has columns for the new rows only (raise_column) */
    int depth, steps;
} reader;

static inline const ir_dim *number(const reader *e, int64_t value) {
    return ir_dim_const(e->dims, value);
}

/* Uses one symbol for lengths that are equal. */
static inline const ir_dim *settled(const reader *e, const ir_dim *dim) {
    return e->n_same ? ir_dim_substitute(e->dims, dim, e->n_same, e->same, e->by) : dim;
}

static inline bool is_one(const ir_dim *dim) {
    int64_t n;
    return ir_dim_is_const(dim, &n) && n == 1;
}

/* Rewrites a length for comparisons, for calls in which no length of the scores is 0: it is
 * expressed by these lengths minus 1, so that the length of a Slice may turn out constant. */
const ir_dim *raise_comparable(const reader *e, const ir_dim *dim);
/* True if d >= 0 at every element; false if not, or if d is not linear in each coordinate. */
bool raise_holds_everywhere(const reader *e, const ir_dim *d);
/* Index of an element in an operand that is broadcast to the `rank` dims of the result. */
bool raise_broadcast(reader *e, const ir_value *x, const ir_dim *const *index, int rank,
                     const ir_dim **to);
/* The index of an element in an axis of that length, which is broadcast. A mask [S,S] is expanded
 * to P + S columns by files for calls with P = 0, where its column k is key k, or with S = 1, where
 * its only column is each key. In a sequence column k is the new row k, key P + k; such a mask may
 * only express causality, which agrees with the file in both kinds of calls. */
const ir_dim *raise_column(reader *e, const ir_dim *length, const ir_dim *index);
/* Index in x of an element of y, which has the same elements in other dims. */
bool raise_reshaped(const reader *e, const ir_type *x, const ir_type *y, const ir_dim *const *index,
                    const ir_dim **to);
/* The first index of a Slice; NULL: not known. A negative start counts from the end. The length of
 * a table minus a length of the call is a valid start: tables are long enough for every call. */
const ir_dim *raise_slice_start(const reader *e, const ir_dim *start, const ir_dim *length);
/* Sets up the coordinates of scores [B,H,S,keys]. If the keys are a past followed by new rows, the
 * pasts of all inputs except an encoder's get the same length, and attention masks the length of
 * past and new rows together. False: a length is not known. */
bool raise_open(reader *e, raise *r, const ir_type *q, const ir_value *past, const ir_dim *keys);
/* A variable for an index along an axis, which nothing else in the term uses. */
const ir_dim *raise_any_index(const reader *e);
/* Reads a constant: one element or a constant index, a bias of heads, a count, or a triangle. */
bool raise_constant(const reader *e, const ir_value *value, const ir_dim *const *index, term *out);
bool raise_concat(reader *e, ir_node *concat, const ir_dim *const *index, term *out);
/* Reads the element of a value at that index as a term; false: no term can express it. */
bool raise_element(reader *e, ir_value *value, const ir_dim *const *index, term *out);

#endif
