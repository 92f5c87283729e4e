/* Scales and zero points of QuantizeLinear and DequantizeLinear. Source: ONNX operator spec. A
 * scale of one element is that of the whole tensor, whatever its rank. */
#include "ops/build.h"
#include "ops/quantise.h"

#include "numerics/convert.h"
#include "ops/kernel.h"

float quant_rounded(gqac_dtype dtype, float x) {
    return dtype == GQAC_F16    ? gqn_f16_to_f32(gqn_f32_to_f16(x))
           : dtype == GQAC_BF16 ? gqn_bf16_to_f32(gqn_f32_to_bf16(x))
                                : x;
}

gqac_status quant_verify(const ir_node *node, gqac_diag *diag) {
    if (ir_attr_int(node, "block_size") < 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute block_size = %lld: must not be negative",
                (long long)ir_attr_int(node, "block_size"));
    return GQAC_OK;
}

const ir_attr_spec quant_ms_attrs[] = {
    OP_ATTR_INT("axis", 1, "axis of the scales"),
    OP_ATTR_INT("block_size", 0, "elements of the axis that share a scale; 0: not in blocks"),
    {.name = NULL},
};

void quant_ms_expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    results[0] = OP_BUILD(b, node->op->name,
                          .in = {ir_node_input(node, QUANT_X), ir_node_input(node, QUANT_SCALE),
                                 ir_node_input(node, QUANT_ZERO)},
                          .of = node);
}

bool quant_mixes(const ir_node *node) {
    const ir_value *x = ir_node_input(node, QUANT_X), *scale = ir_node_input(node, QUANT_SCALE);
    if (!x || !scale || scale->type.rank == 0)
        return false;
    int64_t length;
    if (scale->type.rank == 1 && ir_dim_is_const(scale->type.dims[0], &length) && length == 1)
        return false;
    /* Computed scales of rows move with their rows. */
    const int rank = scale->type.rank;
    if (rank > 1 && rank == x->type.rank && ir_attr_int(node, "block_size") == 0 &&
        ir_dim_is_const(scale->type.dims[rank - 1], &length) && length == 1 && !scale->constant)
        return false;
    return op_axis_is_row(x, (int)ir_attr_int(node, "axis"));
}

/* True if scale has the shape of x with blocks along the axis. */
static bool blocks_fit(const gqac_tensor *x, const gqac_tensor *scale, int axis, int64_t block) {
    bool fits = scale->rank == x->rank;
    for (int i = 0; fits && i < x->rank; i++) {
        int64_t wanted = x->dims[i];
        if (i == axis)
            wanted = wanted / block + (wanted % block != 0);
        fits = scale->dims[i] == wanted;
    }
    return fits;
}

/* True if scale has the shape of x with 1 as the last dimension. */
static bool rows_fit(const gqac_tensor *x, const gqac_tensor *scale) {
    bool fits = scale->rank == x->rank && x->rank > 1;
    for (int i = 0; fits && i < x->rank; i++)
        fits = scale->dims[i] == (i + 1 < x->rank ? x->dims[i] : 1);
    return fits;
}

gqac_status quant_layout_of(const ir_node *node, const gqac_tensor *x, const gqac_tensor *scale,
                            const gqac_tensor *zero, quant_layout *q, gqac_diag *diag) {
    const int64_t block = ir_attr_int(node, "block_size"), n = gqac_tensor_count(scale);
    int axis = 0;
    *q = (quant_layout){.outer = 1, .length = gqac_tensor_count(x), .inner = 1};
    if (zero && gqac_tensor_count(zero) != n)
        OP_FAIL(node, diag, GQAC_INVALID_INPUT, "there are %lld zero points for %lld scales",
                (long long)gqac_tensor_count(zero), (long long)n);
    if (n == 1 && (block == 0 || scale->rank == 0))
        return GQAC_OK;
    if (block == 0 && rows_fit(x, scale)) {
        q->by_axis = true;
        q->length = n;
        q->inner = x->dims[x->rank - 1];
        return GQAC_OK;
    }
    /* Scales of rows ignore the attribute axis. */
    if (x->rank != 1)
        GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), x->rank, &axis, diag));
    q->outer = op_product(x->dims, 0, axis);
    q->length = x->dims[axis];
    q->inner = op_product(x->dims, axis + 1, x->rank);
    if (block == 0) {
        q->by_axis = true;
        if (scale->rank != 1 || n != q->length)
            OP_FAIL(node, diag, GQAC_INVALID_INPUT,
                    "there are %lld scales of rank %d, but axis %d has the length %lld",
                    (long long)n, scale->rank, axis, (long long)q->length);
        return GQAC_OK;
    }
    q->block = block;
    if (!blocks_fit(x, scale, axis, block))
        OP_FAIL(node, diag, GQAC_INVALID_INPUT,
                "scales do not have the shape of the input in blocks of %lld along axis %d",
                (long long)block, axis);
    q->blocks = scale->dims[axis];
    return GQAC_OK;
}

gqac_status quant_check_shapes(const ir_node *node, gqac_diag *diag) {
    gqac_tensor x, scale, zero;
    quant_layout layout;
    const bool shifted = op_in_shape(node, QUANT_ZERO, &zero);
    if (!op_in_shape(node, QUANT_X, &x) || !op_in_shape(node, QUANT_SCALE, &scale) ||
        quant_layout_of(node, &x, &scale, shifted ? &zero : NULL, &layout, diag) == GQAC_OK)
        return GQAC_OK;
    if (diag)
        diag->status = GQAC_INVALID_MODEL;
    return GQAC_INVALID_MODEL;
}

float quant_range(const float *x, int64_t n, int32_t *zero) {
    float lo = 0, hi = 0;
    for (int64_t i = 0; i < n; i++) { /* NaN is skipped */
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    const float scale = hi == lo ? 1.0f : (hi - lo) / 255.0f;
    *zero = gqn_quantise(0.0f - lo / scale, 0, 255);
    return scale;
}

/* gqn_quantise, clamped before it rounds: beyond 256 every code is 0 or 255. */
OP_BODY void codes_body(uint8_t *restrict y, const float *restrict x, int64_t n, float scale,
                        int32_t zero) {
    const float magic = 0x1.8p23f;
    for (int64_t i = 0; i < n; i++) {
        float t = gqn_div(x[i], scale);
        t = t != t ? 0.0f : t;
        t = t < -256.0f ? -256.0f : t;
        t = t > 256.0f ? 256.0f : t;
        int32_t code = (int32_t)((t + magic) - magic) + zero;
        code = code < 0 ? 0 : code;
        y[i] = (uint8_t)(code > 255 ? 255 : code);
    }
}
OP_KERNEL(codes, (uint8_t * y, const float *x, int64_t n, float scale, int32_t zero),
          (y, x, n, scale, zero))

void quant_codes(uint8_t *y, const float *x, int64_t n, float scale, int32_t zero) {
    codes(y, x, n, scale, zero);
}
