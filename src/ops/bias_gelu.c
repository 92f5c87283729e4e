/* com.microsoft.BiasGelu: Gelu(A + B), where B is a row. Becomes Add and Gelu. Source: ONNX Runtime
 * contrib operators. */
#include "ops/build.h"
#include "ops/shared.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    GQAC_TRY(op_check_rank(node, 0, 1, GQAC_MAX_RANK, diag));
    GQAC_TRY(op_check_rank(node, 1, 1, 1, diag));
    return op_set_type_like(node, 0, op_in_type(node, 0), diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    ir_value *sum = OP_BUILD(b, "Add", .in = {ir_node_input(node, 0), ir_node_input(node, 1)});
    results[0] = OP_BUILD(b, "Gelu", .in = {sum});
}

const gqac_op gqac_op_bias_gelu = {
    .schema = {.name = "BiasGelu",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "A B",
               .outputs = "C",
               .rows = IR_ROWS_LOCAL,
               .doc = "C = Gelu(A + B)"},
    .infer = infer,
    .expand = expand,
};
