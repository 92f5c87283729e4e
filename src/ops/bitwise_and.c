/* BitwiseAnd: c = a & b, on integers. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN2(i64, int64_t, int64_t, a &b)

OP_BINARY(.i64 = i64)

const gqac_op gqac_op_bitwise_and = {
    .schema = {.name = "BitwiseAnd",
               .domain = "",
               .since = 18,
               .introduced = 18,
               .inputs = "a b",
               .outputs = "c",
               .flags = IR_OP_COMMUTATIVE,
               .rows = IR_ROWS_LOCAL,
               .doc = "bitwise and of integers, broadcast"},
    .infer = infer,
    .eval = eval,
};
