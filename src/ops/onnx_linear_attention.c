/* LinearAttention: attention as a recurrence over tokens, its state carried from call to
 * call. Source: ONNX operator spec, 27. */
#include "ops/linear_attention.h"

const gqac_op gqac_op_onnx_linear_attention = {
    .schema = {.name = "LinearAttention",
               .domain = "",
               .since = 27,
               .introduced = 27,
               .inputs = "query key value past_state? decay? beta?",
               .outputs = "output present_state?",
               .attrs = linear_attention_attrs,
               .rows = IR_ROWS_STATE,
               .doc = "recurrent attention of [B,S,H*D] with a state [B,Hkv,dk,dv]"},
    .infer = linear_attention_infer,
    .verify = linear_attention_verify,
    .eval = linear_attention_eval,
    .mixes = linear_attention_mixes,
};
