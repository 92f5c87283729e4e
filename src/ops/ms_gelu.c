/* com.microsoft.Gelu: Gelu by erf. Becomes that of ONNX. Source: ONNX Runtime contrib operators. */
#include "ops/build.h"
#include "ops/shared.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS, diag));
    return op_set_type_like(node, 0, op_in_type(node, 0), diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    results[0] = OP_BUILD(b, "Gelu", .in = {ir_node_input(node, 0)});
}

const gqac_op gqac_op_ms_gelu = {
    .schema = {.name = "Gelu",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "X",
               .outputs = "Y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x/2 (1 + erf(x/sqrt 2))"},
    .infer = infer,
    .expand = expand,
};
