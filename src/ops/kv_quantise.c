/* codes [B,H,S,D] i8, or [B,H,S,(D+1)/2] u8 with two codes in a byte, from x [B,H,S,D] and a scale
 * [1] or [H*D]:
 *   q = clamp(round_half_even(x * (1 / scale)), -128 .. 127 or -8 .. 7)
 * The reciprocal and the product are computed in fp32; a scale of 0 counts as 1; NaN becomes the
 * largest code. 4 bits: q + 8 of an even channel is the low nibble, of an odd one the high nibble;
 * the last high nibble of an odd D holds q = 0. */
#include "ops/attention.h"

#include "numerics/convert.h"

static const ir_attr_spec attrs[] = {
    {"bits", IR_ATTR_INT, .required = true, .doc = "bits of a code, 8 or 4"},
    OP_ATTR_INT("per_channel", 0, "1: a scale for each channel of each head"),
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, 0, 4, diag));
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS, diag));
    GQAC_TRY(attention_want_dtype(node, 1, GQAC_F32, diag));
    const int bits = (int)ir_attr_int(node, "bits");
    const ir_dim *dims[4];
    for (int i = 0; i < 4; i++)
        dims[i] = op_in_dim(node, 0, i);
    dims[3] = attention_code_width(op_dims(node), dims[3], bits);
    return op_set_type(node, 0, bits == 8 ? GQAC_I8 : GQAC_U8, 4, dims, diag);
}

typedef struct quantising {
    const gqac_tensor *x;
    unsigned char *codes;
    const float *scale;
    int64_t heads, rows, size, width; /* width: bytes of a row */
    bool per_channel, nibbles;
    op_scratch scratch;
} quantising;

static gqn_i32 code_of(float x, float scale, gqn_i32 lo, gqn_i32 hi) {
    float y = x * gqn_div(1.0f, scale == 0.0f ? 1.0f : scale);
    return y != y ? hi : gqn_quantise(y, lo, hi);
}

static void one_row(const quantising *q, const float *x, const float *scale, unsigned char *row) {
    const int64_t step = q->per_channel ? 1 : 0;
    for (int64_t d = 0; d < q->size && !q->nibbles; d++)
        row[d] = (unsigned char)(code_of(x[d], scale[d * step], -128, 127) & 0xff);
    for (int64_t d = 0; d < q->size && q->nibbles; d += 2) {
        gqn_i32 low = code_of(x[d], scale[d * step], -8, 7);
        gqn_i32 high = d + 1 < q->size ? code_of(x[d + 1], scale[(d + 1) * step], -8, 7) : 0;
        row[d / 2] = (unsigned char)((low + 8) | (high + 8) << 4);
    }
}

/* Items are rows (b, h, s). */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const quantising *q = arg;
    float *x = (float *)(void *)(q->scratch.base + (size_t)worker * q->scratch.stride);
    for (size_t item = begin; item < end; item++) {
        int64_t head = (int64_t)item / q->rows % q->heads;
        op_get_f32s(q->x, (int64_t)item * q->size, q->size, x);
        one_row(q, x, q->scale + (q->per_channel ? head * q->size : 0),
                q->codes + (int64_t)item * q->width);
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(attention_float(call, 0, 4));
    const gqac_tensor *x = call->in[0];
    quantising q = {.x = x,
                    .heads = x->dims[1],
                    .rows = x->dims[2],
                    .size = x->dims[3],
                    .per_channel = ir_attr_int(call->node, "per_channel") == 1,
                    .nibbles = ir_attr_int(call->node, "bits") == 4};
    GQAC_TRY(attention_scales(call, call->in[1], q.per_channel, q.heads, q.size, &q.scale));
    q.width = q.nibbles ? q.size / 2 + q.size % 2 : q.size;
    int64_t dims[4] = {x->dims[0], q.heads, q.rows, q.width};
    GQAC_TRY(op_output(call, 0, q.nibbles ? GQAC_U8 : GQAC_I8, 4, dims));
    q.codes = call->out[0].data;
    GQAC_TRY(op_scratch_open(call, (size_t)q.size, sizeof(float), &q.scratch));
    op_parallel(call, dims[0] * q.heads * q.rows, 1 + q.size, run, &q);
    op_scratch_close(&q.scratch);
    return GQAC_OK;
}

const gqac_op gqac_op_kv_quantise = {
    .schema = {.name = "kv_quantise",
               .domain = "gqac",
               .since = 1,
               .inputs = "x scale",
               .outputs = "codes",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "codes of x [B,H,S,D] in 8 bits (i8), or in 4 bits (u8, two a byte)"},
    .infer = infer,
    .verify = attention_code_verify,
    .eval = eval,
};
