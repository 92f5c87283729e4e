/* DequantizeLinear: y = (x - zero point) * scale, in fp32 and rounded once. One scale for the
 * tensor, for each index of an axis, each block along it, or each row. Source: ONNX operator
 * spec. */
#include "ops/elementwise.h"
#include "ops/quantise.h"
#include "ops/reduction.h"

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", 1, "axis of the scales"),
    OP_ATTR_INT("block_size", 0, "elements of the axis that share a scale; 0: not in blocks"),
    {"output_dtype", IR_ATTR_DTYPE, .doc = "type of the result; absent: that of the scale"},
    {.name = NULL},
};

static gqac_dtype result_of(const ir_node *node, gqac_dtype scale) {
    return ir_attr_is_set(node, "output_dtype") ? ir_attr_get(node, "output_dtype")->dtype : scale;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const gqac_dtype dtype = result_of(node, GQAC_F32);
    if (!OP_IN(OP_FLOATS, dtype))
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "attribute output_dtype = %s: must be f32, f16 or bf16", gqac_dtype_name(dtype));
    return quant_verify(node, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, QUANT_X, QUANT_CODES, diag));
    GQAC_TRY(op_check_dtype(node, QUANT_SCALE, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, QUANT_X, QUANT_ZERO, diag));
    GQAC_TRY(quant_check_shapes(node, diag));
    ir_type type = op_in_type(node, QUANT_X);
    type.dtype = result_of(node, op_in_type(node, QUANT_SCALE).dtype);
    return op_set_type_like(node, 0, type, diag);
}

typedef struct dequant {
    const gqac_tensor *x, *scale, *zero;
    gqac_tensor *y;
    quant_layout q;
} dequant;

/* Items are (outer, index on the axis). */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const dequant *d = arg;
    float values[OP_SPAN];
    (void)worker;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        const int64_t o = item / d->q.length, a = item % d->q.length;
        for (int64_t first = 0; first < d->q.inner; first += OP_SPAN) {
            const int64_t left = d->q.inner - first, n = left < OP_SPAN ? left : OP_SPAN;
            const int64_t at = item * d->q.inner + first;
            for (int64_t i = 0; i < n; i++) {
                const int64_t s = quant_scale_at(&d->q, o, a, first + i);
                const int64_t zero = d->zero ? op_get_i64(d->zero, s) : 0;
                values[i] = (float)(op_get_i64(d->x, at + i) - zero) * op_get_f32(d->scale, s);
            }
            op_put_f32s(d->y, at, n, values);
        }
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, QUANT_X, QUANT_CODES));
    GQAC_TRY(op_want_set(call, QUANT_SCALE, OP_FLOATS));
    dequant d = {.x = call->in[QUANT_X], .scale = call->in[QUANT_SCALE], .y = &call->out[0]};
    if (ir_node_input(call->node, QUANT_ZERO)) {
        GQAC_TRY(op_want(call, QUANT_ZERO, d.x->dtype));
        d.zero = call->in[QUANT_ZERO];
    }
    GQAC_TRY(quant_layout_of(call->node, d.x, d.scale, d.zero, &d.q, call->diag));
    GQAC_TRY(op_output_like(call, 0, result_of(call->node, d.scale->dtype), d.x));
    if (gqac_tensor_count(d.x) > 0)
        op_parallel(call, d.q.outer * d.q.length, 4 + 4 * d.q.inner, run, &d);
    return GQAC_OK;
}

const gqac_op gqac_op_dequantize_linear = {
    .schema = {.name = "DequantizeLinear",
               .domain = "",
               .since = 23,
               .introduced = 10,
               .inputs = "x x_scale x_zero_point?",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "y = (x - zero point) * scale, by tensor, axis or block"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
    .mixes = quant_mixes,
};
