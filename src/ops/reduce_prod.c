/* ReduceProd: product over axes, ascending; integers wrap.
 * Source: ONNX operator spec. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

static float f32(const float *row, int64_t n) {
    float product = 1.0f;
    for (int64_t i = 0; i < n; i++)
        product *= row[i];
    return product;
}

static double f64(const double *row, int64_t n) {
    double product = 1.0;
    for (int64_t i = 0; i < n; i++)
        product *= row[i];
    return product;
}

static int64_t i64(const int64_t *row, int64_t n) {
    int64_t product = 1;
    for (int64_t i = 0; i < n; i++)
        product = op_wrap_mul(product, row[i]);
    return product;
}

OP_REDUCE(.f32 = f32, .f64 = f64, .i64 = i64, .dim = ir_dim_mul)

const gqac_op gqac_op_reduce_prod =
    OP_REDUCE_ROW(.name = "ReduceProd", .domain = "", .since = 18, .doc = "product over axes");
