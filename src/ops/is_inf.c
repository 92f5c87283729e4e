/* IsInf: y = x is infinite, of the signs asked for. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include <math.h>

typedef struct wanted {
    bool below, above;
} wanted;

static void span_f32(void *y, const void *const *x, size_t n, const void *arg) {
    const wanted *w = arg;
    for (size_t i = 0; i < n; i++) {
        float value = ((const float *)x[0])[i];
        ((uint8_t *)y)[i] = (w->below && value == -INFINITY) || (w->above && value == INFINITY);
    }
}

static void span_f64(void *y, const void *const *x, size_t n, const void *arg) {
    const wanted *w = arg;
    for (size_t i = 0; i < n; i++) {
        double value = ((const double *)x[0])[i];
        ((uint8_t *)y)[i] =
            (w->below && value == -(double)INFINITY) || (w->above && value == (double)INFINITY);
    }
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
    wanted w = {.below = ir_attr_int(call->node, "detect_negative") != 0,
                .above = ir_attr_int(call->node, "detect_positive") != 0};
    op_map map = {.run = wide ? span_f64 : span_f32,
                  .arg = &w,
                  .n_in = 1,
                  .in = {call->in[0]},
                  .in_as = {wide ? OP_AS_F64 : OP_AS_F32},
                  .out = &call->out[0],
                  .out_as = OP_AS_BOOL};
    op_map_run(call, &map);
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("detect_negative", 1, "1: -inf counts"),
    OP_ATTR_INT("detect_positive", 1, "1: +inf counts"),
    {.name = NULL},
};

const gqac_op gqac_op_is_inf =
    OP_UNARY_ROW(.name = "IsInf", .domain = "", .since = 20, .introduced = 10, .attrs = attrs,
                 .doc = "y = is x infinite?");
