/* Softmax: y = exp(x - max) / sum exp(x - max) along one axis. Source: ONNX operator spec, 13.
 *
 * One row, one owner: maximum and sum by 16 lanes and their trees (numerics/reduce.h). Before opset
 * 13 the axis split the tensor into a matrix, which is the same for the last axis only. */
#include "ops/reduction.h"

#include "numerics/math.h"
#include "numerics/reduce.h"
#include "ops/kernel.h"

OP_BODY void one_row_body(float *restrict y, const float *restrict x, size_t n) {
    const float most = gqn_lane_max(x, n);
    float lane[GQAC_LANES] = {0};
    size_t i = 0;
    for (; i + GQAC_LANES <= n; i += GQAC_LANES)
        GQN_EACH_LANE(j, lane[j] += y[i + j] = gqn_expf(x[i + j] - most));
    for (size_t j = 0; i < n; i++, j++) {
        y[i] = gqn_expf(x[i] - most);
        lane[j] += y[i];
    }
    const float sum = gqn_lane_fold(lane);
    for (i = 0; i < n; i++)
        y[i] = gqn_div(y[i], sum);
}
OP_KERNEL(one_row, (float *y, const float *x, size_t n), (y, x, n))

static void compute(float *y, const float *x, int64_t n) {
    one_row(y, x, (size_t)n);
}

OP_SOFTMAX(compute)

const gqac_op gqac_op_softmax =
    OP_SOFTMAX_ROW(.name = "Softmax", .domain = "", .since = 13,
                   .doc = "y = exp(x - max) / sum exp(x - max) along an axis");
