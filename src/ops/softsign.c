/* Softsign: y = x / (1 + |x|). Source: ONNX operator spec. */
#include "ops/shared.h"

#include "numerics/math.h"

OP_SPAN1(f32, float, gqn_div(x, 1.0f + gqn_abs(x)))

static const op_unary kernel = {.f32 = f32};

const gqac_op gqac_op_softsign = {
    .schema = {.name = "Softsign",
               .domain = "",
               .since = 1,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x / (1 + |x|)"},
    .formula.unary = &kernel,
    .infer = op_unary_infer,
    .eval = op_unary_eval,
};
