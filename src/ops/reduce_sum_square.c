/* ReduceSumSquare: sum of squares over axes, lanes by fma (numerics/reduce.h); integers wrap.
 * Source: ONNX operator spec. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

#include "numerics/reduce.h"

static float f32(const float *row, int64_t n) {
    return gqn_lane_sum_sq(row, (size_t)n);
}

static int64_t i64(const int64_t *row, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = op_wrap_add(sum, op_wrap_mul(row[i], row[i]));
    return sum;
}

OP_REDUCE(.f32 = f32, .i64 = i64, .composite = true)

const gqac_op gqac_op_reduce_sum_square =
    OP_REDUCE_ROW(.name = "ReduceSumSquare", .domain = "", .since = 18,
                  .doc = "sum of squares over axes");
