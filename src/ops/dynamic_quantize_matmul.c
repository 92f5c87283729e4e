/* com.microsoft.DynamicQuantizeMatMul: A becomes u8 by DynamicQuantizeLinear, then
 * MatMulIntegerToFloat. As there, the codes of a row depend on all rows. Source: ONNX Runtime
 * contrib operators. */
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

/* `codes` gives codes, scale and zero point of A. */
static ir_value *multiply(ir_builder *b, ir_node *node, ir_node *codes) {
    ir_value *bias = ir_node_input(node, BIAS);
    ir_value *in[] = {ir_build_result(b, codes, 0),
                      ir_node_input(node, B),
                      ir_build_result(b, codes, 1),
                      ir_node_input(node, B_SCALE),
                      ir_build_result(b, codes, 2),
                      ir_node_input(node, B_ZERO),
                      bias};
    return op_build1(b, "com.microsoft", "MatMulIntegerToFloat", bias ? 7 : in[5] ? 6 : 5, in);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    ir_value *a = ir_node_input(node, A);
    (void)options;
    results[0] = multiply(b, node, op_build(b, "", "DynamicQuantizeLinear", 1, &a, 3));
}

static void by_row(ir_builder *b, ir_node *node, ir_value **results) {
    ir_value *a = ir_node_input(node, A);
    results[0] = multiply(b, node, op_build(b, "gqac", "quantise_rows", 1, &a, 3));
}

const gqac_op gqac_op_dynamic_quantize_matmul = {
    .schema = {.name = "DynamicQuantizeMatMul",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "A B b_scale b_zero_point? bias?",
               .outputs = "Y",
               .rows = IR_ROWS_MIXES,
               .doc = "Y = A in u8, one scale for all of it, times B in 8 bits, + bias"},
    .infer = infer,
    .expand = expand,
    .by_row = by_row,
};
