/* LinearAttention (linear_attention.h) with the state of a sequence in place of past and present:
 * query [B,S,Hq*dk], key, value, token, decay?, beta? -> output, token. Row b uses the state of its
 * sequence and its first new_len[b] tokens; the other rows of the output are zeros. Sequences and
 * lengths come from the target, as for kv_append. It has no eval: targets have a kernel for it. */
#include "ops/linear_attention.h"

static gqac_status eval(op_call *call) {
    OP_FAIL(call->node, call->diag, GQAC_INTERNAL, "KV state exists only in a step of a sequence");
}

const gqac_op gqac_op_recurrent_attention = {
    .schema = {.name = "recurrent_attention",
               .domain = "gqac",
               .since = 1,
               .inputs = "query key value token decay? beta?",
               .outputs = "output token",
               .attrs = linear_attention_attrs,
               .flags = IR_OP_EFFECT | IR_OP_NO_FOLD,
               .rows = IR_ROWS_STATE,
               .doc = "LinearAttention with the state [Hkv,dk,dv] of a sequence"},
    .infer = linear_attention_infer,
    .verify = linear_attention_verify,
    .eval = eval,
};
