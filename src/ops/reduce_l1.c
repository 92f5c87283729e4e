/* ReduceL1: sum of |x| over axes, in the order of ReduceSum; integers wrap. Source: ONNX operator
 * spec. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

#include "numerics/reduce.h"

static float f32(const float *row, int64_t n) {
    return gqn_lane_sum_abs(row, (size_t)n);
}

static int64_t i64(const int64_t *row, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = op_wrap_add(sum, row[i] < 0 ? op_wrap_sub(0, row[i]) : row[i]);
    return sum;
}

static int64_t u64(const int64_t *row, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = op_wrap_add(sum, row[i]);
    return sum;
}

OP_REDUCE(.f32 = f32, .i64 = i64, .u64 = u64, .composite = true)

const gqac_op gqac_op_reduce_l1 =
    OP_REDUCE_ROW(.name = "ReduceL1", .domain = "", .since = 18, .doc = "sum of |x| over axes");
