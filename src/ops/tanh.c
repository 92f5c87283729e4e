/* Tanh: y = tanh(x). Source: ONNX operator spec. */
#include "ops/shared.h"

#include "numerics/math.h"
#include "ops/kernel.h"

OP_SPAN1_FMA(f32, gqn_tanhf(x))

static const op_unary kernel = {.f32 = f32};

const gqac_op gqac_op_tanh = {
    .schema = {.name = "Tanh",
               .domain = "",
               .since = 13,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = tanh(x)"},
    .formula.unary = &kernel,
    .infer = op_unary_infer,
    .eval = op_unary_eval,
};
