/* IsNaN: y = x is not a number. Source: ONNX operator spec. */
#include "ops/elementwise.h"

static void f32(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)y)[i] = ((const float *)x[0])[i] != ((const float *)x[0])[i];
}

static void f64(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)y)[i] = ((const double *)x[0])[i] != ((const double *)x[0])[i];
}

static gqac_status eval(op_call *call) {
    return op_test_eval(call, f32, f64, NULL);
}

const gqac_op gqac_op_is_nan = {
    .schema = {.inputs = "x",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .name = "IsNaN",
               .domain = "",
               .since = 20,
               .introduced = 9,
               .doc = "y = is x not a number?"},
    .infer = op_test_infer,
    .eval = eval,
};
