/* ThresholdedRelu: y = x for x > alpha, else 0, also for NaN. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN1(f32, float, x > *(const float *)arg_ ? x : 0.0f)

OP_UNARY(.f32 = f32)

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1, "threshold"),
    {.name = NULL},
};

const gqac_op gqac_op_thresholded_relu =
    OP_UNARY_ROW(.name = "ThresholdedRelu", .domain = "", .since = 10, .introduced = 10,
                 .attrs = attrs, .doc = "y = x where x > alpha, else 0");
