/* An attention that is written out in simple ops. raise_attention.c finds the pattern and decides,
 * raise_attention_operands.c matches keys and values, raise_attention_masks.c reads masks and
 * reports those that stay tensors, and raise_attention_build.c builds the op. */
#ifndef GQAC_PASSES_RAISE_ATTENTION_H
#define GQAC_PASSES_RAISE_ATTENTION_H

#include "passes/raise_scores.h"

/* Keys or values. */
typedef struct attention_operand {
    ir_value *rows;    /* [B,H,T,D]; only the new rows if there is a past */
    ir_value *past;    /* a graph input [B,H,P,D], or a Cast of one; NULL: none */
    ir_value *present; /* NULL without a past */
} attention_operand;

typedef struct attention {
    const ir_node *root, *softmax;
    ir_value *softmax_input; /* without sinks */
    ir_value *sinks;         /* NULL: none */
    ir_value *q;             /* [B,H,S,D] */
    attention_operand k, v;
    raise_scores scores; /* with its masks */
    raise_codes weights; /* to which the probabilities are rounded */
    raise_mask mask;     /* what the masks that were read mean together */
    bool has_tensors;    /* some masks stay tensors */
} attention;

/* True if queries, keys, values and sinks fit each other (raise_attention.c). */
bool raise_fits(raise *r, const attention *a, const ir_node *place);

/* ---- keys and values (raise_attention_operands.c) ----------------------------------- */

bool raise_same_dims(const ir_value *a, int first_a, const ir_value *b, int first_b, int n);
/* Returns x [B,h,T,D] if the value is x with each head repeated n times: by Expand or Tile,
 * [B,h,1,T,D] -> [B,h,n,T,D] -> [B,h*n,T,D], or by Gather; the value itself if nothing is repeated.
 * NULL: it cannot be raised. */
ir_value *raise_unrepeated(raise *r, ir_value *value);
/* The Concat of a past, which is a graph input or a Cast of one, and new rows; NULL: the value is
 * not such a Concat. */
const ir_node *raise_past_concat(const ir_value *value);
/* Reads keys or values; false: they cannot be raised. */
bool raise_read_operand(raise *r, ir_value *value, attention_operand *out);
/* Returns k [B,H,T,D] if the value is k^T, and multiplies *scale by its constant factors; NULL: it
 * cannot be raised. */
ir_value *raise_untransposed_key(raise *r, ir_value *value, double *scale);

/* ---- masks (raise_attention_masks.c) --------------------------------------------- */

/* Reads all masks, some of which may stay tensors; false: it cannot be raised. */
bool raise_read_masks(raise *r, attention *a);
/* True if a query may see no key: not if a mask is only causality, a window or a bias. */
bool raise_may_hide_rows(const attention *a);

/* ---- the op (raise_attention_build.c) ------------------------------------ */

/* Builds Attention, GroupQueryAttention if there are sinks, or rounded_attention if scores or
 * probabilities are rounded to codes; returns y [B,H,S,D]. */
ir_value *raise_build_attention(raise *r, const attention *a);
/* y [B,H,S,D] as [B*H,S,D]. */
ir_value *raise_build_folded(raise *r, ir_value *y);

#endif
