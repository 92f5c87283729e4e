/* Xor: c = a exclusive-or b. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN2(logic, uint8_t, uint8_t, !a != !b)

OP_COMPARE(.logic = logic)

const gqac_op gqac_op_xor =
    OP_BINARY_ROW(.name = "Xor", .domain = "", .since = 7, .flags = IR_OP_COMMUTATIVE,
                  .doc = "c = a exclusive-or b, broadcast");
