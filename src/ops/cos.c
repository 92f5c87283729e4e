/* Cos: y = cos(x). Source: ONNX operator spec. */
#include "ops/shared.h"

#include "numerics/math.h"

OP_SPAN1(f32, float, gqn_cosf(x))

static const op_unary kernel = {.f32 = f32};

const gqac_op gqac_op_cos = {
    .schema = {.name = "Cos",
               .domain = "",
               .since = 7,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = cos(x)"},
    .formula.unary = &kernel,
    .infer = op_unary_infer,
    .eval = op_unary_eval,
};
