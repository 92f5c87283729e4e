/* IsInf: y = x is an infinity of a sign that the attributes allow. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include <math.h>

typedef struct wanted {
    bool below, above;
} wanted;

static void f32(void *y, const void *const *x, size_t n, const void *arg) {
    const wanted *w = arg;
    for (size_t i = 0; i < n; i++) {
        float value = ((const float *)x[0])[i];
        ((uint8_t *)y)[i] = (w->below && value == -INFINITY) || (w->above && value == INFINITY);
    }
}

static void f64(void *y, const void *const *x, size_t n, const void *arg) {
    const wanted *w = arg;
    for (size_t i = 0; i < n; i++) {
        double value = ((const double *)x[0])[i];
        ((uint8_t *)y)[i] =
            (w->below && value == -(double)INFINITY) || (w->above && value == (double)INFINITY);
    }
}

static gqac_status eval(op_call *call) {
    wanted w = {.below = ir_attr_int(call->node, "detect_negative") != 0,
                .above = ir_attr_int(call->node, "detect_positive") != 0};
    return op_test_eval(call, f32, f64, &w);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("detect_negative", 1, "1: -inf counts"),
    OP_ATTR_INT("detect_positive", 1, "1: +inf counts"),
    {.name = NULL},
};

const gqac_op gqac_op_is_inf = {
    .schema = {.inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .name = "IsInf",
               .domain = "",
               .since = 20,
               .introduced = 10,
               .attrs = attrs,
               .doc = "y = is x infinite?"},
    .infer = op_test_infer,
    .eval = eval,
};
