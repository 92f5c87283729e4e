/* GroupQueryAttention: its inputs, and functions that its checks and its lowering share. */
#ifndef GQAC_OPS_GQA_H
#define GQAC_OPS_GQA_H

#include "ops/attention.h"

enum {
    GQA_QUERY,
    GQA_KEY,
    GQA_VALUE,
    GQA_PAST_KEY,
    GQA_PAST_VALUE,
    GQA_SEQLENS_K,
    GQA_TOTAL,
    GQA_COS,
    GQA_SIN,
    GQA_POSITION_IDS,
    GQA_BIAS,
    GQA_SINK,
    GQA_K_SCALE,
    GQA_V_SCALE,
    GQA_Q_NORM,
    GQA_K_NORM,
    GQA_N_INPUTS
};

/* Verify and infer of the row. */
gqac_status gqa_verify(const ir_node *node, gqac_diag *diag);
gqac_status gqa_infer(ir_node *node, gqac_diag *diag);
/* The head size D, from the query or else from the past; NULL: neither is known. */
const ir_dim *gqa_head_size(const ir_node *node);
/* x normalised with the operand `weight` and the node's epsilon; x itself if that operand is
 * absent. */
ir_value *gqa_norm(ir_builder *b, const ir_node *node, ir_value *x, int weight);
/* Bits of a code of a quantised cache; 0: the cache holds values. */
int gqa_code_bits(const ir_node *node);
/* take_apart of the row. */
void gqa_take_apart(ir_builder *b, const ir_node *node, ir_value *positions,
                    const op_options *options, op_parts *parts);
/* Keys (GQA_PAST_KEY) or values (GQA_PAST_VALUE): one scale for each channel of each head, or one
 * alone. */
bool gqa_per_channel(const ir_node *node, int past);

#endif
