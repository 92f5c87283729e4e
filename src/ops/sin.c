/* Sin: y = sin(x). Source: ONNX operator spec. */
#include "ops/shared.h"

#include "numerics/math.h"

OP_SPAN1(f32, float, gqn_sinf(x))

static const op_unary kernel = {.f32 = f32};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_unary_eval(call, &kernel, NULL);
}

const gqac_op gqac_op_sin = {
    .schema = {.name = "Sin",
               .domain = "",
               .since = 7,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = sin(x)"},
    .infer = infer,
    .eval = eval,
};
