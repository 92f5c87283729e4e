/* Hardmax: 1 where the first maximum of a row lies, else 0, along one axis; NaN is a maximum.
 * Source: ONNX operator spec, 13. */
#include "ops/reduction.h"

static void compute(float *y, const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best] || (x[i] != x[i] && x[best] == x[best]))
            best = i;
    for (int64_t i = 0; i < n; i++)
        y[i] = i == best;
}

OP_SOFTMAX(compute)

const gqac_op gqac_op_hardmax =
    OP_SOFTMAX_ROW(.name = "Hardmax", .domain = "", .since = 13,
                   .doc = "1 at the first maximum of a row along an axis, else 0");
