/* The path from the softmax of an attention back to the product of queries and keys: the masks,
 * which are added to scores or replace some of them, the softcap, the scale, and the two
 * factors. */
#ifndef GQAC_PASSES_RAISE_SCORES_H
#define GQAC_PASSES_RAISE_SCORES_H

#include "passes/raise.h"

enum { RAISE_PARTS = 6 };

/* One mask: it is added to the scores, or is the condition of a Where (`fill` not NULL). */
typedef struct raise_part {
    ir_value *of;
    ir_value *fill; /* what replaces a hidden score; NULL: `of` is added */
    bool hidden;    /* it is true where a key is hidden */
    bool folded;    /* of scores [B*H,S,T] */
    bool carried;   /* it stays a tensor */
    bool narrow;    /* it stays a tensor, and may have one column for all keys */
    double factor;  /* by which scores and this mask are multiplied together; 0: none */
    raise_mask seen;
} raise_part;

typedef struct raise_scores {
    ir_value *q, *k;   /* k with its last axes swapped; both may have constant factors */
    raise_codes codes; /* to which the product of q and k is rounded before the scale */
    double scale, softcap;
    double mask_factor; /* of the masks that are still to be found; part of scale; 0: none */
    int n;
    raise_part parts[RAISE_PARTS];
} raise_scores;

/* The operand of a Cast between floats; the value itself if it is none. */
ir_value *raise_through_cast(ir_value *value);
/* The operand of a Reshape between [B,H,S,T] and [B*H,S,T]; NULL: it is not one. */
ir_value *raise_unfolded(ir_value *value);
/* Reads the path back from `given`, the input of the softmax without sinks; false: it cannot be
 * raised. */
bool raise_find_scores(raise *r, const ir_node *softmax, ir_value *given, raise_scores *out);

/* ---- sinks (raise_sink.c) -------------------------------------------------- */

/* The softmax over scores and sinks whose last column this Slice removes; NULL: there is none. */
const ir_node *raise_sunk_softmax(raise *r, const ir_node *slice, ir_value **scores,
                                  ir_value **sinks);
/* Why attention with sinks cannot be raised; NULL: it can. */
const char *raise_no_sinks(const raise *r, const raise_mask *seen, bool has_past, bool carries);

typedef struct raise_sunk {
    ir_value *q, *k, *v, *past_key, *past_value; /* [B,H,S,D], [B,H,P,D] */
    ir_value *sinks;                             /* constant, H elements */
    ir_value *bias; /* padding as numbers to add, [B,1,S,T]; NULL: none */
    const raise_mask *seen;
    double scale, softcap;
} raise_sunk;
/* y [B,H,S,D] of GroupQueryAttention with head_sink. */
ir_value *raise_build_sunk(raise *r, const raise_sunk *s, ir_node **made);

#endif
