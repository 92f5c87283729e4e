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
    ir_value *y, *present_k, *present_v, *qk; /* results; qk fp32 */
} multi_head;
void multi_head_build(ir_builder *b, multi_head *m);

/* Checks of num_heads, unidirectional, scale and mask_filter_value. */
gqac_status multi_head_verify(const ir_node *node, gqac_diag *diag);
/* x [B,S,N*D] as [B,N,S,D]. */
ir_value *multi_head_split(ir_builder *b, ir_value *x, int64_t heads);
/* x[..., index, ...] along `axis`, without that axis. */
ir_value *multi_head_pick(ir_builder *b, ir_value *x, int64_t axis, int64_t index);

#endif
