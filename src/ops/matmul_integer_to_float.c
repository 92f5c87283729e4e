/* com.microsoft.MatMulIntegerToFloat: (A - a_zp) (B - b_zp) * (a_scale * b_scale) + bias. Becomes
 * MatMulInteger, Cast, Mul and Add. Source: ONNX Runtime contrib operators. */
#include "ops/build.h"
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
    ir_value *in[BIAS + 1];
    (void)options;
    for (int i = 0; i <= BIAS; i++)
        in[i] = ir_node_input(node, i);
    ir_value *sum = OP_BUILD(b, "MatMulInteger", .in = {in[A], in[B], in[A_ZERO], in[B_ZERO]});
    ir_value *scale = OP_BUILD(b, "Mul", .in = {in[A_SCALE], in[B_SCALE]});
    ir_value *real = OP_BUILD(b, "CastLike", .in = {sum, scale});
    results[0] = OP_BUILD(b, "Mul", .in = {real, scale});
    if (in[BIAS])
        results[0] = OP_BUILD(b, "Add", .in = {results[0], in[BIAS]});
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
