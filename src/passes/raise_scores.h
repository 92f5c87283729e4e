/* From the softmax of an attention back to the product of queries and keys: what is added to the
 * scores or put in the place of some, and the factors of the rest. */
#ifndef GQAC_PASSES_RAISE_SCORES_H
#define GQAC_PASSES_RAISE_SCORES_H

#include "passes/raise.h"

enum { RAISE_PARTS = 6 };

/* One mask: added to the scores, or the condition of a Where (`fill` not NULL). */
typedef struct raise_part {
    ir_value *of;
    ir_value *fill; /* what a hidden score becomes; NULL: `of` is added */
    bool hidden;    /* it is true where a key is not seen */
    bool folded;    /* to scores [B*H,S,T] */
    bool carried;   /* it goes on as a tensor */
    bool narrow;    /* which may have one column for all keys */
    raise_mask seen;
} raise_part;

typedef struct raise_scores {
    ir_value *q, *k; /* the factors, k with its last axes swapped, and more scales on both */
    double scale, softcap;
    double behind; /* factor of scores and masks together, part of scale; 0: none */
    int n;
    raise_part parts[RAISE_PARTS];
} raise_scores;

/* The value behind Casts between floats, and between [B,H,S,T] and [B*H,S,T]. */
ir_value *raise_through_cast(ir_value *value);
ir_value *raise_unfolded(ir_value *value);
/* What is given to the softmax; false: it was stopped. */
bool raise_find_scores(raise *r, const ir_node *softmax, ir_value *given, raise_scores *out);

/* ---- sinks (raise_sink.c) -------------------------------------------------- */

/* The softmax over scores and sinks whose last column this Slice leaves out. NULL: it does not. */
const ir_node *raise_sunk_softmax(raise *r, const ir_node *slice, ir_value **scores,
                                  ir_value **sinks);
/* Why attention with sinks stays in simple ops; NULL: it does not. */
const char *raise_no_sinks(const raise *r, const raise_mask *seen, bool has_past, bool carries);

typedef struct raise_sunk {
    ir_value *q, *k, *v, *past_key, *past_value; /* [B,H,S,D], [B,H,P,D] */
    ir_value *sinks;                             /* constant, H elements */
    ir_value *bias;                              /* padding, added [B,1,S,T]; NULL: none */
    const raise_mask *seen;
    double scale, softcap;
} raise_sunk;
/* GroupQueryAttention with head_sink; gives y [B,H,S,D]. */
ir_value *raise_build_sunk(raise *r, const raise_sunk *s, ir_node **made);

#endif
