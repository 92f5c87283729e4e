/* com.microsoft.QuantizeLinear: that of ONNX, which had no codes of 4 and 16 bits before opset 21;
 * ONNX Runtime's quantiser writes this op instead. Source: ONNX Runtime contrib operators. */
#include "ops/quantise.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, QUANT_X);
    type.dtype = ir_node_input(node, QUANT_ZERO) ? op_in_type(node, QUANT_ZERO).dtype : GQAC_U8;
    return op_set_type_like(node, 0, type, diag);
}

const gqac_op gqac_op_ms_quantize_linear = {
    .schema = {.name = "QuantizeLinear",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "x y_scale y_zero_point?",
               .outputs = "y",
               .attrs = quant_ms_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "y = round(x / scale) + zero point, saturated, by tensor, axis or block"},
    .infer = infer,
    .verify = quant_verify,
    .expand = quant_ms_expand,
    .mixes = quant_mixes,
};
