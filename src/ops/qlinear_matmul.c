/* QLinearMatMul: codes of a, times codes of b, as codes of y: q((a - a_zero) (b - b_zero) * a_scale
 * * b_scale). Becomes MatMulInteger, Cast, Mul and QuantizeLinear. A scale of a for each row, or of
 * y for each row or column, is not supported. Source: ONNX operator spec. */
#include "ops/build.h"
#include "ops/matmul.h"

enum { A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, Y_SCALE, Y_ZERO };

static gqac_status check_single(const ir_node *node, int operand, const char *what,
                                gqac_diag *diag) {
    const ir_type type = op_in_type(node, operand);
    int64_t n = 1;
    const bool single =
        type.rank <= 0 ||
        (type.rank == 1 && (!type.dims[0] || !ir_dim_is_const(type.dims[0], &n) || n == 1));
    if (!single)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "there is more than one %s", what);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_node as_matmul = *node;
    ir_use operands[] = {node->inputs[A], node->inputs[B]};
    GQAC_TRY(op_check_dtype(node, A_SCALE, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, A_SCALE, B_SCALE, diag));
    GQAC_TRY(op_check_same(node, A_SCALE, Y_SCALE, diag));
    GQAC_TRY(check_single(node, A_SCALE, "scale of a", diag));
    GQAC_TRY(check_single(node, A_ZERO, "zero point of a", diag));
    GQAC_TRY(check_single(node, Y_SCALE, "scale of y", diag));
    GQAC_TRY(check_single(node, Y_ZERO, "zero point of y", diag));
    as_matmul.inputs = operands;
    as_matmul.n_inputs = 2;
    GQAC_TRY(matmul_infer(&as_matmul, op_in_type(node, Y_ZERO).dtype, diag));
    GQAC_TRY(op_check_broadcast(node, B_SCALE, diag));
    return op_check_broadcast(node, B_ZERO, diag);
}

static bool mixes(const ir_node *node) {
    ir_node as_matmul = *node;
    ir_use operands[] = {node->inputs[A], node->inputs[B]};
    as_matmul.inputs = operands;
    as_matmul.n_inputs = 2;
    return matmul_mixes(&as_matmul);
}

/* The operand as a scalar; where infer does not know its length, the Reshape fails if it has more
 * than one element. */
static ir_value *build_scalar(ir_builder *b, ir_node *node, int operand) {
    return OP_BUILD(b, "Reshape", .in = {ir_node_input(node, operand), ir_build_i64s(b, 0, NULL)});
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    ir_value *a_zero = build_scalar(b, node, A_ZERO);
    ir_value *a_scale = op_build_cast(b, build_scalar(b, node, A_SCALE), GQAC_F32);
    ir_value *b_scale = op_build_cast(b, ir_node_input(node, B_SCALE), GQAC_F32);
    ir_value *sum = OP_BUILD(b, "MatMulInteger",
                             .in = {ir_node_input(node, A), ir_node_input(node, B), a_zero,
                                    ir_node_input(node, B_ZERO)});
    sum = op_build_cast(b, sum, GQAC_F32);
    ir_value *scale = OP_BUILD(b, "Mul", .in = {a_scale, b_scale});
    ir_value *y = OP_BUILD(b, "Mul", .in = {sum, scale});
    ir_value *y_scale = op_build_cast(b, build_scalar(b, node, Y_SCALE), GQAC_F32);
    ir_value *y_zero = build_scalar(b, node, Y_ZERO);
    results[0] = OP_BUILD(b, "QuantizeLinear", .in = {y, y_scale, y_zero});
}

const gqac_op gqac_op_qlinear_matmul = {
    .schema = {.name = "QLinearMatMul",
               .domain = "",
               .since = 21,
               .introduced = 10,
               .inputs = "a a_scale a_zero_point b b_scale b_zero_point y_scale y_zero_point",
               .outputs = "y",
               .rows = IR_ROWS_SHAPE,
               .doc = "y = codes of (a - a_zero_point) (b - b_zero_point) * a_scale * b_scale"},
    .infer = infer,
    .expand = expand,
    .mixes = mixes,
};
