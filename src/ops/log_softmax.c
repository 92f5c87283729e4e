/* LogSoftmax: y = (x - max) - log(sum exp(x - max)) along one axis. Source: ONNX operator spec, 13.
 * Maximum and sum by 16 lanes and their trees (numerics/reduce.h), as in Softmax. */
#include "ops/reduction.h"

#include "numerics/math.h"
#include "ops/kernel.h"

OP_BODY void subtract_body(float *y, const float *x, int64_t n, float most, float log_sum) {
    for (int64_t i = 0; i < n; i++)
        y[i] = op_one_nan((x[i] - most) - log_sum);
}
OP_KERNEL(subtract, (float *y, const float *x, int64_t n, float most, float log_sum),
          (y, x, n, most, log_sum))

static void compute(float *y, const float *x, int64_t n) {
    const float most = op_lane_max(x, n);
    subtract(y, x, n, most, gqn_logf(op_lane_sum_exp(x, n, most)));
}

OP_SOFTMAX(compute)

const gqac_op gqac_op_log_softmax = OP_SOFTMAX_ROW(.name = "LogSoftmax", .domain = "", .since = 13,
                                                   .doc = "y = log(softmax(x)) along an axis");
