/* ReduceLogSumExp: log sum exp(x) over axes, with the maximum subtracted first; -inf for no
 * elements. Source: ONNX operator spec. */
#include "ops/reduction.h"

#include "numerics/math.h"

static float f32(const float *row, int64_t n) {
    const float most = op_lane_max(row, n);
    if (n == 0)
        return -gqn_as_f32(GQN_INF_BITS);
    for (int64_t i = 0; i < n && gqn_abs(most) > 3.4028235e38f; i++)
        if (row[i] != row[i])
            return row[i];
    if (!(gqn_abs(most) <= 3.4028235e38f)) /* an infinity, or NaN */
        return most;
    return most + gqn_logf(op_lane_sum_exp(row, n, most));
}

OP_REDUCE(.f32 = f32)

const gqac_op gqac_op_reduce_log_sum_exp =
    OP_REDUCE_ROW(.name = "ReduceLogSumExp", .domain = "", .since = 18,
                  .doc = "log of the sum of exp(x) over axes");
