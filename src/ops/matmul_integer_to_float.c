/* com.microsoft.MatMulIntegerToFloat: (A - a_zp) (B - b_zp) * (a_scale * b_scale) + bias. Becomes
 * MatMulInteger, Cast, Mul and Add. Source: ONNX Runtime contrib operators. */
#include "ops/matmul.h"

enum { A, B, A_SCALE, B_SCALE, A_ZERO, B_ZERO, BIAS };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, A_SCALE, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, A_SCALE, B_SCALE, diag));
    GQAC_TRY(op_check_same(node, A_SCALE, BIAS, diag));
    GQAC_TRY(matmul_infer(node, op_in_type(node, A_SCALE).dtype, diag));
    for (int i = A_SCALE; i <= BIAS; i++)
        GQAC_TRY(op_check_broadcast(node, i, diag));
    return GQAC_OK;
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    ir_value *in[] = {ir_node_input(node, A), ir_node_input(node, B), ir_node_input(node, A_ZERO),
                      ir_node_input(node, B_ZERO)};
    ir_value *scales[] = {ir_node_input(node, A_SCALE), ir_node_input(node, B_SCALE)};
    (void)options;
    ir_value *sum = op_build1(b, "", "MatMulInteger", in[3] ? 4 : in[2] ? 3 : 2, in);
    ir_value *scale = op_build1(b, "", "Mul", 2, scales);
    ir_value *real = op_build1(b, "", "CastLike", 2, (ir_value *[]){sum, scale});
    results[0] = op_build1(b, "", "Mul", 2, (ir_value *[]){real, scale});
    if (ir_node_input(node, BIAS))
        results[0] =
            op_build1(b, "", "Add", 2, (ir_value *[]){results[0], ir_node_input(node, BIAS)});
}

const gqac_op gqac_op_matmul_integer_to_float = {
    .schema = {.name = "MatMulIntegerToFloat",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "A B a_scale b_scale a_zero_point? b_zero_point? bias?",
               .outputs = "Y",
               .rows = IR_ROWS_SHAPE,
               .doc = "Y = (A - a_zero_point) (B - b_zero_point) * a_scale * b_scale + bias"},
    .infer = infer,
    .expand = expand,
    .mixes = matmul_mixes,
};
