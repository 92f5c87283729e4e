/* y fp32 [1,H,1,T] from slopes [H] and keys k [B,Hkv,T,D], of which only the length T is used:
 * y[h,j] = scale * slopes[h] * j. Attention with linear biases (ALiBi) adds slopes[h] times the
 * distance of key and query. That differs from y by a constant in each row, to which a softmax is
 * invariant, so one bias serves all rows, however tokens are split into calls.
 *
 * A file may compute slopes[h] * j in a 16-bit type, and count j in that type too. The bias is then
 * no line, so y has the same roundings: scale * round(slopes[h] * round(j)). */
#include "ops/attention.h"
#include "ops/quantise.h"

enum { SLOPES, K };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, SLOPES, 1, diag));
    GQAC_TRY(attention_want_rank(node, K, 4, diag));
    GQAC_TRY(attention_want_dtype(node, SLOPES, GQAC_F32, diag));
    const ir_dim *one = ir_dim_const(op_dims(node), 1);
    const ir_dim *dims[4] = {one, op_in_dim(node, SLOPES, 0), one, op_in_dim(node, K, 2)};
    return op_set_type(node, 0, GQAC_F32, 4, dims, diag);
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const gqac_dtype dtype = ir_attr_get(node, "dtype")->dtype;
    if (!OP_IN(OP_FLOATS, dtype))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute dtype = %s: it must be f32, f16 or bf16",
                gqac_dtype_name(dtype));
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, SLOPES, GQAC_F32));
    GQAC_TRY(attention_float(call, SLOPES, 1));
    GQAC_TRY(attention_float(call, K, 4));
    const gqac_tensor *slopes = call->in[SLOPES];
    const int64_t heads = slopes->dims[0], keys = call->in[K]->dims[2];
    GQAC_TRY(op_output(call, 0, GQAC_F32, 4, (int64_t[]){1, heads, 1, keys}));
    const gqac_dtype dtype = ir_attr_get(call->node, "dtype")->dtype;
    const gqac_dtype counts = ir_attr_int(call->node, "rounded_keys") ? dtype : GQAC_F32;
    const float *slope = slopes->data, scale = ir_attr_float(call->node, "scale");
    float *y = call->out[0].data;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t j = 0; j < keys; j++)
            y[h * keys + j] =
                quant_rounded(dtype, slope[h] * quant_rounded(counts, (float)j)) * scale;
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("scale", 1, "factor of the rounded products"),
    OP_ATTR("dtype", DTYPE, .dtype = GQAC_F32, "type to which slopes[h] * j is rounded"),
    OP_ATTR_INT("rounded_keys", 0, "1: j is rounded to that type first"),
    {.name = NULL},
};

const gqac_op gqac_op_key_bias = {
    .schema = {.name = "key_bias",
               .domain = "gqac",
               .since = 1,
               .inputs = "slopes k",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "slopes[h] * j, [1,H,1,T]: the bias of linear attention biases (ALiBi)"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
