/* ReduceSum: sum over axes; floats by 16 lanes and their tree (numerics/reduce.h), integers wrap.
 * Source: ONNX operator spec. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

#include "numerics/reduce.h"

static float f32(const float *row, int64_t n) {
    return gqn_lane_sum(row, (size_t)n);
}

static double f64(const double *row, int64_t n) {
    return op_lane_sum_f64(row, n);
}

static int64_t i64(const int64_t *row, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = op_wrap_add(sum, row[i]);
    return sum;
}

OP_REDUCE(.f32 = f32, .f64 = f64, .i64 = i64, .dim = ir_dim_add)

const gqac_op gqac_op_reduce_sum =
    OP_REDUCE_ROW(.name = "ReduceSum", .domain = "", .since = 13, .doc = "sum over axes");
