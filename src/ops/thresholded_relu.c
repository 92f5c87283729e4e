/* ThresholdedRelu: y = x for x > alpha, else 0; NaN gives 0. Source: ONNX operator spec. */
#include "ops/shared.h"

OP_SPAN1(f32, float, x > *(const float *)arg_ ? x : 0.0f)

static const op_unary kernel = {.f32 = f32};

static const ir_attr_spec attrs[] = {
    {.name = "alpha", .kind = IR_ATTR_FLOAT, .fallback = {.set = true, .f = 1}, .doc = "threshold"},
    {.name = NULL},
};

const gqac_op gqac_op_thresholded_relu = {
    .schema = {.name = "ThresholdedRelu",
               .domain = "",
               .since = 10,
               .inputs = "x",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x where x > alpha, else 0"},
    .formula.unary = &kernel,
    .infer = op_unary_infer,
    .eval = op_unary_eval,
};
