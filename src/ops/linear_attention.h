/* LinearAttention of both domains: a recurrence over tokens for each head of k and v.
 *   q [B,S,Hq*dk], k [B,S,Hk*dk], v [B,S,Hkv*dv], past [B,Hkv,dk,dv]?, decay [B,S,Hkv*dk|Hkv]?,
 *   beta [B,S,Hkv|1]? -> y [B,S,max(Hq,Hkv)*dv], present [B,Hkv,dk,dv]
 *   M = exp(decay) * M                       gated, gated_delta
 *   u = v, or beta * (v - M^T k)             delta, gated_delta
 *   M = M + k (x) u,  y = scale * M^T q
 * Hk is Hkv, or divides it: then each head of k is that of Hkv / Hk heads of v.
 * All in fp32, each sum one chain over dk. The state is rounded to its type after every token, so
 * that it does not matter where a call ends. */
#ifndef GQAC_OPS_LINEAR_ATTENTION_H
#define GQAC_OPS_LINEAR_ATTENTION_H

#include "ops/shared.h"

/* Where the states of `n` sequences lie, each [Hkv,dk,dv] of that type. Sequence b is row b of the
 * batch, or all lie one behind another in [1,N,..]. */
typedef struct linear_attention_states {
    gqac_dtype dtype;
    int64_t n;
    gqac_status (*open)(op_call *call, const int64_t dims[4]); /* before the others; [n,..] */
    /* Tokens of sequence b, and the row of the first among all B*S; others give zeros. */
    int64_t (*tokens)(const op_call *call, int64_t b, int64_t *first);
    const void *(*before)(const op_call *call, int64_t b); /* NULL: zeros */
    /* The i-th that is wanted and after how many tokens, ascending; NULL: no more are. */
    void *(*after)(const op_call *call, int64_t b, int i, int64_t *tokens);
} linear_attention_states;

extern const ir_attr_spec linear_attention_attrs[];
gqac_status linear_attention_verify(const ir_node *node, gqac_diag *diag);
gqac_status linear_attention_infer(ir_node *node, gqac_diag *diag);
gqac_status linear_attention_eval(op_call *call);
/* Output 0 from inputs 0 to 2, 4 and 5, and the states. */
gqac_status linear_attention_run(op_call *call, const linear_attention_states *states);
bool linear_attention_mixes(const ir_node *node);

#endif
