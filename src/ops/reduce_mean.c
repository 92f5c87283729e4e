/* ReduceMean: mean over axes: the sum of ReduceSum, then one division; integers are truncated.
 * Source: ONNX operator spec. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

#include "numerics/reduce.h"

static float f32(const float *row, int64_t n) {
    return gqn_div(gqn_lane_sum(row, (size_t)n), (float)n);
}

static double f64(const double *row, int64_t n) {
    return op_lane_sum_f64(row, n) / (double)n;
}

static int64_t i64(const int64_t *row, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = op_wrap_add(sum, row[i]);
    return sum / n;
}

static int64_t u64(const int64_t *row, int64_t n) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (uint64_t)row[i];
    return (int64_t)(sum / (uint64_t)n);
}

OP_REDUCE(.f32 = f32, .f64 = f64, .i64 = i64, .u64 = u64, .nonempty = true)

const gqac_op gqac_op_reduce_mean =
    OP_REDUCE_ROW(.name = "ReduceMean", .domain = "", .since = 18, .doc = "mean over axes");
