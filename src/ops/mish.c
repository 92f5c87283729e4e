/* Mish: y = x tanh(softplus(x)). Source: ONNX operator spec. */
#include "ops/shared.h"

#include "numerics/math.h"
#include "ops/kernel.h"

OP_SPAN1_FMA(f32, x *gqn_tanhf(gqn_softplusf(x)))

static const op_unary kernel = {.f32 = f32};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_unary_eval(call, &kernel, NULL);
}

const gqac_op gqac_op_mish = {
    .schema = {.name = "Mish",
               .domain = "",
               .since = 22,
               .introduced = 18,
               .inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x tanh(log(1 + exp(x)))"},
    .infer = infer,
    .eval = eval,
};
