/* An attention written out in simple ops, as its parts share it: raise_attention.c finds one and
 * decides, raise_attention_operands.c matches its keys and values, raise_attention_masks.c reads
 * its masks and reports those that stay tensors, raise_attention_build.c builds the op. */
#ifndef GQAC_PASSES_RAISE_ATTENTION_H
#define GQAC_PASSES_RAISE_ATTENTION_H

#include "passes/raise_scores.h"

/* Keys or values. */
typedef struct attention_operand {
    ir_value *rows;    /* [B,H,T,D], the new ones where there is a past */
    ir_value *past;    /* a graph input [B,H,P,D]; NULL: none */
    ir_value *present; /* NULL without a past */
} attention_operand;

typedef struct attention {
    const ir_node *root, *softmax;
    ir_value *softmax_input; /* without sinks */
    ir_value *sinks;         /* NULL: none */
    ir_value *q;             /* [B,H,S,D] */
    attention_operand k, v;
    raise_scores scores; /* with its masks */
    raise_mask mask;     /* what those that were read mean together */
    bool has_tensors;    /* some masks stay tensors */
} attention;

/* ---- keys and values (raise_attention_operands.c) ----------------------------------- */

bool raise_same_dims(const ir_value *a, int first_a, const ir_value *b, int first_b, int n);
/* x [B,h,T,D] where the value is x with each head repeated n times: by Expand or Tile,
 * [B,h,1,T,D] -> [B,h,n,T,D] -> [B,h*n,T,D], or by Gather. The value itself where nothing is
 * repeated; NULL: stopped. */
ir_value *raise_unrepeated(raise *r, ir_value *value);
/* The Concat of a past, which is a graph input, and its new rows; NULL: the value is none. */
const ir_node *raise_past_concat(const ir_value *value);
/* false: stopped. */
bool raise_read_operand(raise *r, ir_value *value, attention_operand *out);
/* k [B,H,T,D] where the value is k^T, whose constant factors go to *scale; NULL: stopped. */
ir_value *raise_untransposed_key(raise *r, ir_value *value, double *scale);

/* ---- masks (raise_attention_masks.c) --------------------------------------------- */

/* Reads all masks, of which some may stay tensors; false: stopped. */
bool raise_read_masks(raise *r, attention *a);
/* May a query see no key? Not where a mask is only causality, a window or a bias. */
bool raise_may_hide_rows(const attention *a);

/* ---- the op (raise_attention_build.c) ------------------------------------ */

/* y [B,H,S,D] of Attention, or of GroupQueryAttention where there are sinks. */
ir_value *raise_build_attention(raise *r, const attention *a);
/* y [B,H,S,D] as [B*H,S,D]. */
ir_value *raise_build_folded(raise *r, ir_value *y);

#endif
