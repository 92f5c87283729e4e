/* y fp32 [1,H,1,T] from slopes [H] and keys k [B,Hkv,T,D], of which only the length T is used:
 * y[h,j] = slopes[h] * j, rounded once. Attention with linear biases (ALiBi) adds slopes[h] times
 * the distance of key and query. That differs from y by a constant in each row, to which a softmax
 * is invariant, so one bias serves all rows, however tokens are split into calls. */
#include "ops/attention.h"

enum { SLOPES, K };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, SLOPES, 1, diag));
    GQAC_TRY(attention_want_rank(node, K, 4, diag));
    GQAC_TRY(attention_want_dtype(node, SLOPES, GQAC_F32, diag));
    const ir_dim *one = ir_dim_const(op_dims(node), 1);
    const ir_dim *dims[4] = {one, op_in_dim(node, SLOPES, 0), one, op_in_dim(node, K, 2)};
    return op_set_type(node, 0, GQAC_F32, 4, dims, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, SLOPES, GQAC_F32));
    GQAC_TRY(attention_float(call, SLOPES, 1));
    GQAC_TRY(attention_float(call, K, 4));
    const gqac_tensor *slopes = call->in[SLOPES];
    const int64_t heads = slopes->dims[0], keys = call->in[K]->dims[2];
    GQAC_TRY(op_output(call, 0, GQAC_F32, 4, (int64_t[]){1, heads, 1, keys}));
    const float *slope = slopes->data;
    float *y = call->out[0].data;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t j = 0; j < keys; j++)
            y[h * keys + j] = slope[h] * (float)j;
    return GQAC_OK;
}

const gqac_op gqac_op_key_bias = {
    .schema = {.name = "key_bias",
               .domain = "gqac",
               .since = 1,
               .inputs = "slopes k",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "slopes[h] * j, [1,H,1,T]: the bias of linear attention biases (ALiBi)"},
    .infer = infer,
    .eval = eval,
};
