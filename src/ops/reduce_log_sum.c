/* ReduceLogSum: logarithm of ReduceSum; -inf for no elements. Source: ONNX operator spec. */
#include "ops/reduction.h"

#include "numerics/math.h"
#include "numerics/reduce.h"

static float f32(const float *row, int64_t n) {
    return gqn_logf(gqn_lane_sum(row, (size_t)n));
}

OP_REDUCE(.f32 = f32, .composite = true)

const gqac_op gqac_op_reduce_log_sum =
    OP_REDUCE_ROW(.name = "ReduceLogSum", .domain = "", .since = 18,
                  .doc = "log of the sum over axes");
