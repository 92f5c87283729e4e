/* PRelu: y = slope x for x < 0, else x; slope broadcasts to x. Source: ONNX operator spec. */
#include "ops/elementwise.h"

OP_SPAN2(f32, float, float, a < 0.0f ? b * a : a)
OP_SPAN2(f64, double, double, a < 0.0 ? b * a : a)
OP_SPAN2(i64, int64_t, int64_t, a < 0 ? op_wrap_mul(a, b) : a)
OP_SPAN2(u64, int64_t, int64_t, ((void)b, a))

static const op_binary kernel = {.f32 = f32, .f64 = f64, .i64 = i64, .u64 = u64};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_binary_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_binary_eval(call, &kernel));
    const gqac_tensor *x = call->in[0], *y = &call->out[0];
    bool fits = x->rank == y->rank;
    for (int i = 0; i < x->rank && fits; i++)
        fits = x->dims[i] == y->dims[i];
    if (!fits)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "the slope does not broadcast to x");
    return GQAC_OK;
}

const gqac_op gqac_op_p_relu = {
    .schema = {.name = "PRelu",
               .domain = "",
               .since = 16,
               .inputs = "x slope",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x, slope x where x < 0"},
    .infer = infer,
    .eval = eval,
};
