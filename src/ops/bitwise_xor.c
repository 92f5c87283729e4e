/* BitwiseXor: c = a ^ b, on integers. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN2(i64, int64_t, int64_t, a ^ b)

OP_BINARY(.i64 = i64)

const gqac_op gqac_op_bitwise_xor =
    OP_BINARY_ROW(.name = "BitwiseXor", .domain = "", .since = 18, .introduced = 18,
                  .flags = IR_OP_COMMUTATIVE, .doc = "bitwise exclusive or of integers, broadcast");
