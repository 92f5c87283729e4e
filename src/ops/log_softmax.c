/* LogSoftmax: y = (x - max) - log(sum exp(x - max)) along one axis. Source: ONNX operator spec, 13.
 * Maximum and sum by 16 lanes and their trees (numerics/reduce.h), as in Softmax. */
#include "ops/shared.h"

#include "numerics/math.h"
#include "numerics/reduce.h"

static void compute(float *row, int64_t n) {
    float lane[GQAC_LANES] = {0};
    float most = gqn_lane_max(row, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        lane[i % GQAC_LANES] += gqn_expf(row[i] - most);
    float log_sum = gqn_logf(gqn_lane_fold(lane));
    for (int64_t i = 0; i < n; i++)
        row[i] = (row[i] - most) - log_sum;
}

static gqac_status eval(op_call *call) {
    return op_softmax_eval(call, compute);
}

static const ir_attr_spec attrs[] = {
    {.name = "axis", .kind = IR_ATTR_INT, .doc = "axis of a row; -1 when absent"},
    {.name = NULL},
};

const gqac_op gqac_op_log_softmax = {
    .schema = {.name = "LogSoftmax",
               .domain = "",
               .since = 13,
               .inputs = "input",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "y = log(softmax(x)) along an axis"},
    .infer = op_softmax_infer,
    .eval = eval,
    .upgrade = op_softmax_upgrade,
    .mixes = op_softmax_mixes,
};
