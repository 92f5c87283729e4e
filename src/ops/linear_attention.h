/* LinearAttention of both domains: a recurrence over tokens for each head of k and v.
 *   q [B,S,Hq*dk], k [B,S,Hkv*dk], v [B,S,Hkv*dv], past [B,Hkv,dk,dv]?, decay [B,S,Hkv*dk|Hkv]?,
 *   beta [B,S,Hkv|1]? -> y [B,S,max(Hq,Hkv)*dv], present [B,Hkv,dk,dv]
 *   M = exp(decay) * M                       gated, gated_delta
 *   u = v, or beta * (v - M^T k)             delta, gated_delta
 *   M = M + k (x) u,  y = scale * M^T q
 * All in fp32, each sum one chain over dk. The state is rounded to its type after every token, so
 * that it does not matter where a call ends. */
#ifndef GQAC_OPS_LINEAR_ATTENTION_H
#define GQAC_OPS_LINEAR_ATTENTION_H

#include "ops/shared.h"

extern const ir_attr_spec linear_attention_attrs[];
gqac_status linear_attention_verify(const ir_node *node, gqac_diag *diag);
gqac_status linear_attention_infer(ir_node *node, gqac_diag *diag);
gqac_status linear_attention_eval(op_call *call);
bool linear_attention_mixes(const ir_node *node);

#endif
