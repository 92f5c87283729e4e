/* Softmax: y = exp(x - max) / sum exp(x - max) along one axis. Source: ONNX operator spec, 13.
 *
 * One row, one owner: maximum and sum by 16 lanes and their trees (numerics/reduce.h). Before opset
 * 13 the axis split the tensor into a matrix; that is the same only for the last axis. */
#include "ops/shared.h"

#include "numerics/math.h"
#include "numerics/reduce.h"
#include "ops/kernel.h"

OP_BODY void exponents_body(float *row, int64_t n, float most) {
    int64_t i = 0;
    for (; i + GQAC_LANES <= n; i += GQAC_LANES)
        for (int l = 0; l < GQAC_LANES; l++)
            row[i + l] = gqn_expf(row[i + l] - most);
    for (; i < n; i++)
        row[i] = gqn_expf(row[i] - most);
}
OP_KERNEL(exponents, (float *row, int64_t n, float most), (row, n, most))

static void compute(float *row, int64_t n) {
    exponents(row, n, gqn_lane_max(row, (size_t)n));
    float sum = gqn_lane_sum(row, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        row[i] = gqn_div(row[i], sum);
}

static gqac_status eval(op_call *call) {
    return op_softmax_eval(call, compute);
}

static const ir_attr_spec attrs[] = {
    {.name = "axis", .kind = IR_ATTR_INT, .doc = "axis of a row; -1 when absent"},
    {.name = NULL},
};

const gqac_op gqac_op_softmax = {
    .schema = {.name = "Softmax",
               .domain = "",
               .since = 13,
               .inputs = "input",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "y = exp(x - max) / sum exp(x - max) along an axis"},
    .infer = op_softmax_infer,
    .eval = eval,
    .upgrade = op_softmax_upgrade,
    .mixes = op_softmax_mixes,
};
