/* BitwiseNot: y = ~x, on integers. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN1(i64, int64_t, ~x)

OP_UNARY(.i64 = i64)

const gqac_op gqac_op_bitwise_not = {
    .schema = {.name = "BitwiseNot",
               .domain = "",
               .since = 18,
               .introduced = 18,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = ~x, on integers"},
    .infer = infer,
    .eval = eval,
};
