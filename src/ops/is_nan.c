/* IsNaN: y = x is not a number. Source: ONNX operator spec. */
#include "ops/elementwise.h"

static void span_f32(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)y)[i] = ((const float *)x[0])[i] != ((const float *)x[0])[i];
}

static void span_f64(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)y)[i] = ((const double *)x[0])[i] != ((const double *)x[0])[i];
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type x = op_in_type(node, 0);
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS | OP_BIT(F64), diag));
    return op_set_type(node, 0, GQAC_BOOL, x.rank, x.rank < 0 ? NULL : x.dims, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, 0, OP_FLOATS | OP_BIT(F64)));
    GQAC_TRY(op_output_like(call, 0, GQAC_BOOL, call->in[0]));
    bool wide = call->in[0]->dtype == GQAC_F64;
    op_map map = {.run = wide ? span_f64 : span_f32,
                  .n_in = 1,
                  .in = {call->in[0]},
                  .in_as = {wide ? OP_AS_F64 : OP_AS_F32},
                  .out = &call->out[0],
                  .out_as = OP_AS_BOOL};
    op_map_run(call, &map);
    return GQAC_OK;
}

const gqac_op gqac_op_is_nan = OP_UNARY_ROW(.name = "IsNaN", .domain = "", .since = 20,
                                            .introduced = 9, .doc = "y = is x not a number?");
