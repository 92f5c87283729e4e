/* ReduceMax: maximum over axes; NaN wins; -inf for no floats, an error for no integers. Source:
 * ONNX operator spec. */
#include "ops/reduction.h"

#include <math.h>

static float f32(const float *row, int64_t n) {
    return op_extreme_f32(row, n, false);
}

OP_EXTREMES(>, -INFINITY)
OP_REDUCE(.f32 = f32, .f64 = f64, .i64 = i64, .u64 = u64, .bools = true, .nonempty = true,
          .dim = ir_dim_max)

const gqac_op gqac_op_reduce_max =
    OP_REDUCE_ROW(.name = "ReduceMax", .domain = "", .since = 18, .doc = "maximum over axes");
