/* com.microsoft.DequantizeLinear: that of ONNX, which had no codes of 4 and 16 bits before opset
 * 21; ONNX Runtime's quantiser writes this op instead. Source: ONNX Runtime contrib operators. */
#include "ops/build.h"
#include "ops/quantise.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, QUANT_X);
    type.dtype = op_in_type(node, QUANT_SCALE).dtype;
    return op_set_type_like(node, 0, type, diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    results[0] = OP_BUILD(b, "DequantizeLinear",
                          .in = {ir_node_input(node, QUANT_X), ir_node_input(node, QUANT_SCALE),
                                 ir_node_input(node, QUANT_ZERO)},
                          .of = node);
}

const gqac_op gqac_op_ms_dequantize_linear = {
    .schema = {.name = "DequantizeLinear",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "x x_scale x_zero_point?",
               .outputs = "y",
               .attrs = quant_ms_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "y = (x - zero point) * scale, by tensor, axis or block"},
    .infer = infer,
    .verify = quant_verify,
    .expand = expand,
    .mixes = quant_mixes,
};
