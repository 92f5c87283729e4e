/* Or: c = a or b. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN2(logic, uint8_t, uint8_t, a || b)

OP_COMPARE(.logic = logic)

const gqac_op gqac_op_or =
    OP_BINARY_ROW(.name = "Or", .domain = "", .since = 7, .flags = IR_OP_COMMUTATIVE,
                  .doc = "c = a or b, broadcast");
