/* y [B,H,T,D] fp32 from codes [B,H,T,D] i8, or [B,H,T,(D+1)/2] u8 of two each, and a scale [1] or
 * [H*D]: y = q * scale, in fp32 (zeros for a channel of scale 0). Codes are those of kv_quantise.
 * Rows are independent; unpublished rows become numbers that nothing reads. */
#include "ops/attention.h"

#include "numerics/convert.h"

static const ir_attr_spec attrs[] = {
    {"bits", IR_ATTR_INT, .required = true, .doc = "bits of a code, 8 or 4"},
    OP_ATTR_INT("per_channel", 0, "1: a scale for each channel of each head"),
    {"size", IR_ATTR_INT, .required = true, .doc = "channels D of a head"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "size", 1, INT32_MAX, diag));
    return attention_code_verify(node, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const int bits = (int)ir_attr_int(node, "bits");
    GQAC_TRY(attention_want_rank(node, 0, 4, diag));
    GQAC_TRY(attention_want_dtype(node, 0, bits == 8 ? GQAC_I8 : GQAC_U8, diag));
    GQAC_TRY(attention_want_dtype(node, 1, GQAC_F32, diag));
    const ir_dim *size = ir_dim_const(op_dims(node), ir_attr_int(node, "size"));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, 0, 3),
                                attention_code_width(op_dims(node), size, bits),
                                "bytes of a row of codes", diag));
    const ir_dim *dims[4] = {op_in_dim(node, 0, 0), op_in_dim(node, 0, 1), op_in_dim(node, 0, 2),
                             size};
    return op_set_type(node, 0, GQAC_F32, 4, dims, diag);
}

typedef struct dequantising {
    const unsigned char *codes;
    float *y;
    const float *scale;
    int64_t heads, rows, size, width;
    bool per_channel, nibbles;
} dequantising;

/* Items are rows (b, h, t). */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const dequantising *q = arg;
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        int64_t head = (int64_t)item / q->rows % q->heads, step = q->per_channel ? 1 : 0;
        const unsigned char *row = q->codes + (int64_t)item * q->width;
        const float *scale = q->scale + head * step * q->size;
        float *y = q->y + (int64_t)item * q->size;
        for (int64_t d = 0; d < q->size; d++) {
            gqn_i32 code = q->nibbles ? gqn_uint4_of(row[d / 2], (gqn_u32)(d & 1)) - 8
                                      : (row[d] ^ 0x80) - 0x80;
            y[d] = (float)code * scale[d * step];
        }
    }
}

static gqac_status eval(op_call *call) {
    const bool nibbles = ir_attr_int(call->node, "bits") == 4;
    GQAC_TRY(op_want(call, 0, nibbles ? GQAC_U8 : GQAC_I8));
    const gqac_tensor *codes = call->in[0];
    dequantising q = {.codes = codes->data,
                      .size = ir_attr_int(call->node, "size"),
                      .per_channel = ir_attr_int(call->node, "per_channel") == 1,
                      .nibbles = nibbles};
    q.width = nibbles ? q.size / 2 + q.size % 2 : q.size;
    if (codes->rank != 4 || codes->dims[3] != q.width)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "codes of %lld channels must have the shape [B,H,T,%lld]", (long long)q.size,
                (long long)q.width);
    q.heads = codes->dims[1];
    q.rows = codes->dims[2];
    GQAC_TRY(attention_scales(call, call->in[1], q.per_channel, q.heads, q.size, &q.scale));
    int64_t dims[4] = {codes->dims[0], q.heads, q.rows, q.size};
    GQAC_TRY(op_output(call, 0, GQAC_F32, 4, dims));
    q.y = call->out[0].data;
    op_parallel(call, dims[0] * q.heads * q.rows, 1 + q.size / 2, run, &q);
    return GQAC_OK;
}

const gqac_op gqac_op_kv_dequantise = {
    .schema = {.name = "kv_dequantise",
               .domain = "gqac",
               .since = 1,
               .inputs = "codes scale",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y [B,H,T,D] fp32 = code * scale; codes as kv_quantise makes them"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
