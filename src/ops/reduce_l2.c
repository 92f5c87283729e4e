/* ReduceL2: square root of the sum of squares over axes, lanes by fma (numerics/reduce.h). Source:
 * ONNX operator spec. */
#include "ops/reduction.h"

#include "numerics/reduce.h"

static float f32(const float *row, int64_t n) {
    return gqn_sqrt(gqn_lane_sum_sq(row, (size_t)n));
}

OP_REDUCE(.f32 = f32, .composite = true)

const gqac_op gqac_op_reduce_l2 =
    OP_REDUCE_ROW(.name = "ReduceL2", .domain = "", .since = 18,
                  .doc = "square root of the sum of squares over axes");
