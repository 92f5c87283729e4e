/* GroupQueryAttention: its inputs, and what its checks share with its lowering. */
#ifndef GQAC_OPS_GQA_H
#define GQAC_OPS_GQA_H

#include "ops/attention.h"

enum {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    SEQLENS_K,
    TOTAL,
    COS,
    SIN,
    POSITION_IDS,
    BIAS,
    SINK,
    K_SCALE,
    V_SCALE,
    Q_NORM,
    K_NORM,
    N_INPUTS
};

/* Verify and infer of the row. */
gqac_status gqa_verify(const ir_node *node, gqac_diag *diag);
gqac_status gqa_infer(ir_node *node, gqac_diag *diag);
/* D from the query, else from the past; NULL when neither is known. */
const ir_dim *gqa_head_size(const ir_node *node);
/* x normalised with the operand `weight` and the epsilon of the node; x where that is absent. */
ir_value *gqa_norm(ir_builder *b, const ir_node *node, ir_value *x, int weight);
/* Bits of a code of a quantised cache; 0: the cache holds values. */
int gqa_code_bits(const ir_node *node);
/* take_apart of the row. */
void gqa_take_apart(ir_builder *b, const ir_node *node, ir_value *positions,
                    const op_options *options, op_parts *parts);
/* Keys (PAST_KEY) or values (PAST_VALUE): one scale for each channel of each head, or one alone. */
bool gqa_per_channel(const ir_node *node, int past);

#endif
