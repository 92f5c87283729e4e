/* ReduceMin: minimum over axes; NaN wins; no floats give inf, no integers are an error.
 * Source: ONNX operator spec. */
#include "ops/shared.h"

#include <math.h>

static float f32(const float *row, int64_t n) {
    return op_extreme_f32(row, n, true);
}

static double f64(const double *row, int64_t n) {
    double best = (double)INFINITY;
    for (int64_t i = 0; i < n; i++)
        best = row[i] < best || row[i] != row[i] ? row[i] : best;
    return best;
}

static int64_t i64(const int64_t *row, int64_t n) {
    int64_t best = row[0];
    for (int64_t i = 1; i < n; i++)
        best = row[i] < best ? row[i] : best;
    return best;
}

static int64_t u64(const int64_t *row, int64_t n) {
    int64_t best = row[0];
    for (int64_t i = 1; i < n; i++)
        best = (uint64_t)row[i] < (uint64_t)best ? row[i] : best;
    return best;
}

static const op_reduce kernel = {.f32 = f32,
                                 .f64 = f64,
                                 .i64 = i64,
                                 .u64 = u64,
                                 .bools = true,
                                 .nonempty = true,
                                 .dim = op_dim_min};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_reduce_infer(node, &kernel, diag);
}

static gqac_status eval(op_call *call) {
    return op_reduce_eval(call, &kernel);
}

const gqac_op gqac_op_reduce_min = {
    .schema = {.name = "ReduceMin",
               .domain = "",
               .since = 18,
               .inputs = "data axes?",
               .outputs = "reduced",
               .attrs = op_reduce_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "minimum over axes"},
    .infer = infer,
    .eval = eval,
    .upgrade = op_reduce_upgrade,
    .mixes = op_reduce_mixes,
};
