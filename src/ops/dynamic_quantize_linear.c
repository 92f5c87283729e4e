/* DynamicQuantizeLinear: u8 codes of x with one scale and zero point for the tensor, such that 0
 * and all of x are in range:
 *   lo = min(0, min x), hi = max(0, max x), scale = (hi - lo) / 255 (1 when hi = lo)
 *   zero point = round(saturate(0 - lo / scale)), y = saturate(round(x / scale) + zero point)
 * Rounding is half to even. A value of one row changes the codes of all others: no model that has
 * this op gives the same bits however its tokens are split. Source: ONNX operator spec. */
#include "ops/shared.h"

#include "numerics/convert.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, OP_BIT(F32), diag));
    ir_type type = op_in_type(node, 0);
    type.dtype = GQAC_U8;
    GQAC_TRY(op_set_type_like(node, 0, type, diag));
    GQAC_TRY(op_set_type(node, 1, GQAC_F32, 0, NULL, diag));
    return op_set_type(node, 2, GQAC_U8, 0, NULL, diag);
}

typedef struct codes {
    const float *x;
    uint8_t *y;
    float scale;
    int32_t zero;
} codes;

static void run(void *arg, size_t begin, size_t end, int worker) {
    const codes *c = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        const int32_t code = gqn_quantise(c->x[i] / c->scale, -256, 256) + c->zero;
        c->y[i] = (uint8_t)(code < 0 ? 0 : code > 255 ? 255 : code);
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_F32));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(op_output_like(call, 0, GQAC_U8, x));
    GQAC_TRY(op_output(call, 1, GQAC_F32, 0, NULL));
    GQAC_TRY(op_output(call, 2, GQAC_U8, 0, NULL));
    codes c = {.x = x->data, .y = call->out[0].data, .scale = 1};
    const int64_t n = gqac_tensor_count(x);
    float lo = 0, hi = 0;
    for (int64_t i = 0; i < n; i++) { /* a NaN is passed over */
        lo = c.x[i] < lo ? c.x[i] : lo;
        hi = c.x[i] > hi ? c.x[i] : hi;
    }
    if (hi != lo)
        c.scale = (hi - lo) / 255.0f;
    c.zero = gqn_quantise(0.0f - lo / c.scale, 0, 255);
    *(float *)call->out[1].data = c.scale;
    *(uint8_t *)call->out[2].data = (uint8_t)c.zero;
    op_parallel(call, n, 5, run, &c);
    return GQAC_OK;
}

const gqac_op gqac_op_dynamic_quantize_linear = {
    .schema = {.name = "DynamicQuantizeLinear",
               .domain = "",
               .since = 11,
               .inputs = "x",
               .outputs = "y y_scale? y_zero_point?",
               .rows = IR_ROWS_MIXES,
               .doc = "u8 codes of x, one scale and zero point for all of it"},
    .infer = infer,
    .eval = eval,
};
