/* LpNormalization: y = x / (p-norm of its row along one axis), p = 1 or 2; a row of zeros stays
 * zeros. Source: ONNX operator spec. Sums by 16 lanes and their tree (numerics/reduce.h). */
#include "ops/reduction.h"

#include "numerics/reduce.h"
#include "ops/kernel.h"

static void divide(float *y, const float *x, int64_t n, float norm) {
    for (int64_t i = 0; i < n; i++)
        y[i] = norm == 0 ? 0.0f : op_one_nan(gqn_div(x[i], norm));
}

static void by_one(float *y, const float *x, int64_t n) {
    divide(y, x, n, gqn_lane_sum_abs(x, (size_t)n));
}

static void by_two(float *y, const float *x, int64_t n) {
    divide(y, x, n, gqn_sqrt(gqn_lane_sum_sq(x, (size_t)n)));
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    return op_check_int(node, "p", 1, 2, diag);
}

static gqac_status eval(op_call *call) {
    return op_softmax_eval(call, ir_attr_int(call->node, "p") == 1 ? by_one : by_two);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", -1, "axis of a row"),
    OP_ATTR_INT("p", 2, "1 or 2"),
    {.name = NULL},
};

const gqac_op gqac_op_lp_normalization = {
    .schema = {.name = "LpNormalization",
               .domain = "",
               .since = 1,
               .inputs = "input",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "y = x / its p-norm along an axis"},
    .infer = op_softmax_infer,
    .verify = verify,
    .eval = eval,
    .mixes = op_softmax_mixes,
};
