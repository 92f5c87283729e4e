/* LinearAttention of both domains: the recurrence (recurrence.h) with past and present states
 *   past [B,Hkv,dk,dv]?, present [B,Hkv,dk,dv]. */
#ifndef GQAC_OPS_LINEAR_ATTENTION_H
#define GQAC_OPS_LINEAR_ATTENTION_H

#include "ops/recurrence.h"
#include "ops/shared.h"

extern const ir_attr_spec linear_attention_attrs[];
gqac_status linear_attention_verify(const ir_node *node, gqac_diag *diag);
gqac_status linear_attention_infer(ir_node *node, gqac_diag *diag);
gqac_status linear_attention_eval(op_call *call);
/* The attributes of a verified node of LinearAttention or recurrent_attention. */
recurrence_form linear_attention_form_of(const ir_node *node);
bool linear_attention_mixes(const ir_node *node);
/* The op row of LinearAttention in a domain. */
#define LINEAR_ATTENTION_ROW(...)                                                                  \
    {                                                                                              \
        .schema = {.name = "LinearAttention",                                                      \
                   .inputs = "query key value past_state? decay? beta?",                           \
                   .outputs = "output present_state?",                                             \
                   .attrs = linear_attention_attrs,                                                \
                   .rows = IR_ROWS_STATE,                                                          \
                   .doc = "recurrent attention of [B,S,H*D] with a state [B,Hkv,dk,dv]",           \
                   __VA_ARGS__},                                                                   \
        .infer = linear_attention_infer, .verify = linear_attention_verify,                        \
        .eval = linear_attention_eval, .mixes = linear_attention_mixes                             \
    }

#endif
