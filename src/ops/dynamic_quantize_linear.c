/* DynamicQuantizeLinear: u8 codes of x with one scale and zero point for the tensor, such that 0
 * and all of x are in range:
 *   lo = min(0, min x), hi = max(0, max x), scale = (hi - lo) / 255 (1 when hi = lo)
 *   zero point = round(saturate(0 - lo / scale)), y = saturate(round(x / scale) + zero point)
 * Rounding is half to even. A value of one row changes the codes of all others: no model that has
 * this op gives the same bits however its tokens are split; --per-row-quant has quantise_rows
 * instead. Source: ONNX operator spec. */
#include "ops/quantise.h"

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
    for (size_t i = begin; i < end; i++)
        c->y[i] = quant_code(c->x[i], c->scale, c->zero);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_F32));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(op_output_like(call, 0, GQAC_U8, x));
    GQAC_TRY(op_output(call, 1, GQAC_F32, 0, NULL));
    GQAC_TRY(op_output(call, 2, GQAC_U8, 0, NULL));
    codes c = {.x = x->data, .y = call->out[0].data};
    const int64_t n = gqac_tensor_count(x);
    c.scale = quant_range(c.x, n, &c.zero);
    *(float *)call->out[1].data = c.scale;
    *(uint8_t *)call->out[2].data = (uint8_t)c.zero;
    op_parallel(call, n, 5, run, &c);
    return GQAC_OK;
}

static void by_row(ir_builder *b, ir_node *node, ir_value **results) {
    ir_value *x = ir_node_input(node, 0);
    ir_node *rows = op_build(b, "gqac", "quantise_rows", 1, &x, 3);
    for (int i = 0; i < node->n_outputs; i++)
        results[i] = ir_build_result(b, rows, i);
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
    .by_row = by_row,
};
