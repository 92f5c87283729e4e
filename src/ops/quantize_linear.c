/* QuantizeLinear: y = saturate(round_half_even(x / scale) + zero point). The quotient has the
 * precision of the scale, or that of the attribute. One scale for the tensor, for each index of an
 * axis, or for each block along it. NaN becomes the zero point. Source: ONNX operator spec. */
#include "ops/copy.h"
#include "ops/quantise.h"

#include "numerics/convert.h"

#define INPUTS (OP_FLOATS | OP_BIT(I32))
#define CODES  (QUANT_CODES & ~OP_BIT(I32))

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", 1, "axis of the scales"),
    OP_ATTR_INT("block_size", 0, "elements of the axis that share a scale; 0: not in blocks"),
    {"output_dtype", IR_ATTR_DTYPE, .doc = "absent: the type of the zero point, or u8"},
    {"precision", IR_ATTR_DTYPE, .doc = "of the quotient; absent: the type of the scale"},
    OP_ATTR_INT("saturate", 1, "for 8-bit floats only"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    static const char *const names[] = {"output_dtype", "precision"};
    static const unsigned sets[] = {CODES, OP_FLOATS};
    for (int i = 0; i < 2; i++)
        if (ir_attr_is_set(node, names[i]) && !OP_IN(sets[i], ir_attr_get(node, names[i])->dtype))
            OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute %s = %s is not supported", names[i],
                    gqac_dtype_name(ir_attr_get(node, names[i])->dtype));
    return quant_verify(node, diag);
}

/* NONE when it is not known yet. */
static gqac_dtype result_of(const ir_node *node, gqac_dtype zero) {
    if (ir_attr_is_set(node, "output_dtype"))
        return ir_attr_get(node, "output_dtype")->dtype;
    return ir_node_input(node, QUANT_ZERO) ? zero : GQAC_U8;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, QUANT_X, INPUTS, diag));
    GQAC_TRY(op_check_dtype(node, QUANT_SCALE, OP_FLOATS, diag));
    GQAC_TRY(op_check_dtype(node, QUANT_ZERO, CODES, diag));
    GQAC_TRY(quant_check_shapes(node, diag));
    ir_type type = op_in_type(node, QUANT_X);
    const gqac_dtype zero = op_in_type(node, QUANT_ZERO).dtype;
    type.dtype = result_of(node, zero);
    if (zero != GQAC_NONE && zero != type.dtype)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "zero points have the type %s, but output_dtype is %s", gqac_dtype_name(zero),
                gqac_dtype_name(type.dtype));
    return op_set_type_like(node, 0, type, diag);
}

typedef struct quant {
    const gqac_tensor *x, *scale, *zero;
    gqac_tensor *y;
    gqac_dtype precision;
    int64_t least, most; /* of a code */
    quant_layout q;
} quant;

static int64_t code_of(const quant *d, float x, float scale, int64_t zero) {
    const float quotient = quant_rounded(d->precision, quant_rounded(d->precision, x) / scale);
    const int64_t code = (int64_t)gqn_f32_to_i32(gqn_round_even(quotient)) + zero;
    return code < d->least ? d->least : code > d->most ? d->most : code;
}

/* Items are pairs of elements: two nibbles lie in one byte. */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const quant *d = arg;
    const int64_t count = gqac_tensor_count(d->x);
    const int64_t last = 2 * (int64_t)end < count ? 2 * (int64_t)end : count;
    (void)worker;
    for (int64_t at = 2 * (int64_t)begin; at < last; at++) {
        const int64_t line = at / d->q.inner;
        const int64_t s =
            quant_scale_at(&d->q, line / d->q.length, line % d->q.length, at % d->q.inner);
        const float x =
            d->x->dtype == GQAC_I32 ? (float)op_get_i64(d->x, at) : op_get_f32(d->x, at);
        op_put_i64(d->y, at,
                   code_of(d, x, op_get_f32(d->scale, s), d->zero ? op_get_i64(d->zero, s) : 0));
    }
}

static void set_limits(quant *d, gqac_dtype dtype) {
    const int bits = gqac_dtype_bits(dtype);
    const bool has_sign = OP_IN(OP_SIGNED | OP_BIT(I4), dtype);
    d->least = has_sign ? -((int64_t)1 << (bits - 1)) : 0;
    d->most = ((int64_t)1 << (has_sign ? bits - 1 : bits)) - 1;
}

static gqac_status eval(op_call *call) {
    const ir_node *node = call->node;
    GQAC_TRY(op_want_set(call, QUANT_X, INPUTS));
    GQAC_TRY(op_want_set(call, QUANT_SCALE, OP_FLOATS));
    quant d = {.x = call->in[QUANT_X], .scale = call->in[QUANT_SCALE], .y = &call->out[0]};
    if (ir_node_input(node, QUANT_ZERO)) {
        GQAC_TRY(op_want_set(call, QUANT_ZERO, CODES));
        d.zero = call->in[QUANT_ZERO];
    }
    const gqac_dtype dtype = result_of(node, d.zero ? d.zero->dtype : GQAC_NONE);
    if (d.zero && d.zero->dtype != dtype)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                "zero points have the type %s, but codes have the type %s",
                gqac_dtype_name(d.zero->dtype), gqac_dtype_name(dtype));
    d.precision =
        ir_attr_is_set(node, "precision") ? ir_attr_get(node, "precision")->dtype : d.scale->dtype;
    set_limits(&d, dtype);
    GQAC_TRY(quant_layout_of(node, d.x, d.scale, d.zero, &d.q, call->diag));
    GQAC_TRY(op_copy_output(call, 0, dtype, d.x->rank, d.x->dims));
    op_parallel(call, (gqac_tensor_count(d.x) + 1) / 2, 30, run, &d);
    return GQAC_OK;
}

const gqac_op gqac_op_quantize_linear = {
    .schema = {.name = "QuantizeLinear",
               .domain = "",
               .since = 23,
               .introduced = 10,
               .inputs = "x y_scale y_zero_point?",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "y = round(x / scale) + zero point, saturated, by tensor, axis or block"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
    .mixes = quant_mixes,
};
