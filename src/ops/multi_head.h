/* Shared by the attention ops of com.microsoft that have as many key heads as query heads. */
#ifndef GQAC_OPS_MULTI_HEAD_H
#define GQAC_OPS_MULTI_HEAD_H

#include "ops/attention.h"

/* Attention of q, k, v [B,N,S|L,D], with optional (NULL) past [B,N,P,D], padding mask i32 (see
 * padding_bias) and bias that broadcasts to [B,N,S,P+L]. With past_rows (i32, one element) past is
 * a buffer [B,N,M,D] that holds past_rows rows; the new rows are written after these. */
typedef struct multi_head {
    ir_value *q, *k, *v, *past_k, *past_v, *past_rows, *padding, *bias;
    float scale, filter; /* filter: added to the scores of padding */
    bool causal, wants_qk;
    bool at_end; /* without a past: the last query has the position of the last key */
    ir_value *y, *present_k, *present_v, *qk; /* results; qk fp32 */
} multi_head;
void multi_head_build(ir_builder *b, multi_head *m);

/* Attention and QAttention take queries, keys and values from one projection of their input, and
 * have one tensor for the past of keys and values, [2,B,N,P,D]. */

/* Sets the types of y [B,S,Dv] and present [2,B,N,P+S,D]; the input is operand 0. */
gqac_status multi_head_set_types(ir_node *node, gqac_dtype dtype, int past, const ir_dim *columns,
                                 const ir_dim *head_size, gqac_diag *diag);
/* The projection [B,S,Dq+Dk+Dv] in three parts. */
void multi_head_parts(ir_builder *b, ir_value *x, const int64_t widths[3], ir_value *parts[3]);
/* Attention of these parts; m has everything else but the past. */
void multi_head_build_parts(ir_builder *b, const ir_node *node, ir_value *const parts[3],
                            ir_value *past, multi_head *m, ir_value **results);
bool multi_head_mixes(const ir_node *node, int past);

/* Checks of num_heads, unidirectional, scale and mask_filter_value. */
gqac_status multi_head_verify(const ir_node *node, gqac_diag *diag);
/* UNSUPPORTED: one of n attributes is not 0. */
gqac_status multi_head_verify_zero(const ir_node *node, const char *const *attrs, int n,
                                   gqac_diag *diag);
/* x [B,S,N*D] as [B,N,S,D]. */
ir_value *multi_head_split(ir_builder *b, ir_value *x, int64_t heads);
/* x[..., index, ...] along `axis`, without that axis. */
ir_value *multi_head_pick(ir_builder *b, ir_value *x, int64_t axis, int64_t index);

#endif
