/* Abs: y = |x|; the least integer wraps to itself. Source: ONNX operator spec. */
#include "ops/shared.h"

#include <math.h>

#include "numerics/math.h"

OP_SPAN1(f32, float, gqn_abs(x))
OP_SPAN1(f64, double, fabs(x))
OP_SPAN1(i64, int64_t, x < 0 ? op_wrap_sub(0, x) : x)

static const op_unary kernel = {.f32 = f32, .f64 = f64, .i64 = i64, .not_for = OP_BIT(U64)};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_unary_eval(call, &kernel, NULL);
}

const gqac_op gqac_op_abs = {
    .schema = {.name = "Abs",
               .domain = "",
               .since = 13,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = |x|"},
    .infer = infer,
    .eval = eval,
};
