/* Not: y = not x, on bool. Source: ONNX operator spec. */
#include "ops/elementwise.h"

static void span(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    uint8_t *to = y;
    const uint8_t *from = x[0];
    for (size_t i = 0; i < n; i++)
        to[i] = !from[i];
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, OP_BIT(BOOL), diag));
    return op_set_type_like(node, 0, op_in_type(node, 0), diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_BOOL));
    GQAC_TRY(op_output_like(call, 0, GQAC_BOOL, call->in[0]));
    op_map map = {.run = span,
                  .n_in = 1,
                  .in = {call->in[0]},
                  .in_as = {OP_AS_BOOL},
                  .out = &call->out[0],
                  .out_as = OP_AS_BOOL};
    op_map_run(call, &map);
    return GQAC_OK;
}

const gqac_op gqac_op_not =
    OP_UNARY_ROW(.name = "Not", .domain = "", .since = 1, .doc = "y = not x");
