/* Sqrt: y = sqrt(x), correctly rounded. Source: ONNX operator spec. */
#include "ops/shared.h"

#include <math.h>

#include "numerics/dialect.h"

OP_SPAN1(f32, float, gqn_sqrt(x))
OP_SPAN1(f64, double, sqrt(x))

static const op_unary kernel = {.f32 = f32, .f64 = f64};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_unary_eval(call, &kernel, NULL);
}

const gqac_op gqac_op_sqrt = {
    .schema = {.name = "Sqrt",
               .domain = "",
               .since = 13,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = sqrt(x)"},
    .infer = infer,
    .eval = eval,
};
