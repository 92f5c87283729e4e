/* com.microsoft.DynamicQuantizeMatMul: A becomes u8 by DynamicQuantizeLinear, then
 * MatMulIntegerToFloat. The codes of a row depend on all rows. Source: ONNX Runtime contrib
 * operators. */
#include "ops/build.h"
#include "ops/matmul.h"

enum { A, B, B_SCALE, B_ZERO, BIAS };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, A, OP_BIT(F32), diag));
    GQAC_TRY(op_check_dtype(node, B_SCALE, OP_BIT(F32), diag));
    GQAC_TRY(matmul_infer(node, op_in_type(node, A).dtype, diag));
    for (int i = B_SCALE; i <= BIAS; i++)
        GQAC_TRY(op_check_broadcast(node, i, diag));
    return GQAC_OK;
}

/* `codes` makes codes, scale and zero point of A. */
/* `quantise` makes codes, scale and zero point of A. */
static ir_value *multiply(ir_builder *b, ir_node *node, const char *quantise) {
    ir_value *codes, *scale, *zero;
    OP_BUILD(b, quantise, .in = {ir_node_input(node, A)}, .out = {&codes, &scale, &zero});
    return OP_BUILD(b, "com.microsoft.MatMulIntegerToFloat",
                    .in = {codes, ir_node_input(node, B), scale, ir_node_input(node, B_SCALE), zero,
                           ir_node_input(node, B_ZERO), ir_node_input(node, BIAS)});
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    results[0] = multiply(b, node, "DynamicQuantizeLinear");
}

static void by_row(ir_builder *b, ir_node *node, ir_value **results) {
    results[0] = multiply(b, node, "quantise_rows");
}

const gqac_op gqac_op_dynamic_quantize_matmul = {
    .schema = {.name = "DynamicQuantizeMatMul",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "A B b_scale b_zero_point? bias?",
               .outputs = "Y",
               .rows = IR_ROWS_MIXES,
               .doc = "Y = A in u8, one scale for the tensor, times B in 8 bits, + bias"},
    .infer = infer,
    .expand = expand,
    .by_row = by_row,
};
