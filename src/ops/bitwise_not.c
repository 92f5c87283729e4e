/* BitwiseNot: y = ~x, on integers. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN1(i64, int64_t, ~x)

OP_UNARY(.i64 = i64)

const gqac_op gqac_op_bitwise_not = OP_UNARY_ROW(.name = "BitwiseNot", .domain = "", .since = 18,
                                                 .introduced = 18, .doc = "y = ~x, on integers");
