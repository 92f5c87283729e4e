/* com.microsoft.GatedAdd: output = X + Y * gate, with one gate for each row; the product is rounded
 * before it is added. Becomes Mul and Add. Source: ONNX Runtime contrib operators. */
#include "ops/build.h"
#include "ops/shared.h"

enum { X, Y, GATE };

static gqac_status check_gate(const ir_node *node, gqac_diag *diag) {
    const ir_type x = op_in_type(node, X), gate = op_in_type(node, GATE);
    int64_t width;
    if (gate.rank == 0 || (gate.rank > 0 && x.rank >= 0 && gate.rank != x.rank))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "gate has rank %d, but X has rank %d", gate.rank,
                x.rank);
    if (gate.rank > 0 && ir_dim_is_const(gate.dims[gate.rank - 1], &width) && width != 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "gate has %lld values in each row, expected 1",
                (long long)width);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    for (int i = X; i <= GATE; i++) {
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
        GQAC_TRY(op_check_same(node, X, i, diag));
    }
    GQAC_TRY(check_gate(node, diag));
    return op_set_type_like(node, 0, op_in_type(node, X), diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    ir_value *gated = OP_BUILD(b, "Mul", .in = {ir_node_input(node, Y), ir_node_input(node, GATE)});
    results[0] = OP_BUILD(b, "Add", .in = {ir_node_input(node, X), gated});
}

const gqac_op gqac_op_gated_add = {
    .schema = {.name = "GatedAdd",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "X Y gate",
               .outputs = "output",
               .rows = IR_ROWS_LOCAL,
               .doc = "output = X + Y * gate, one gate a row"},
    .infer = infer,
    .expand = expand,
};
