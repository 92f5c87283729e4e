/* Sin: y = sin(x). Source: ONNX operator spec. */
#include "ops/shared.h"

#include "numerics/math.h"

OP_SPAN1(f32, float, gqn_sinf(x))

static const op_unary kernel = {.f32 = f32};

const gqac_op gqac_op_sin = {
    .schema = {.name = "Sin",
               .domain = "",
               .since = 7,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = sin(x)"},
    .formula.unary = &kernel,
    .infer = op_unary_infer,
    .eval = op_unary_eval,
};
