/* LeakyRelu: y = alpha x for x < 0, else x. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN1(f32, float, x < 0.0f ? *(const float *)arg_ * x : x)

OP_UNARY(.f32 = f32)

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 0.01f, "slope of the negative part"),
    {.name = NULL},
};

const gqac_op gqac_op_leaky_relu =
    OP_UNARY_ROW(.name = "LeakyRelu", .domain = "", .since = 16, .attrs = attrs,
                 .doc = "y = x, alpha x where x < 0");
