/* CumSum: running sums along one axis. Source: ONNX operator spec. */
#include "ops/reduction.h"

static gqac_status eval(op_call *call) {
    return op_cum_eval(call, false);
}

const gqac_op gqac_op_cum_sum = {
    .schema = {.name = "CumSum",
               .domain = "",
               .since = 14,
               .introduced = 11,
               .inputs = "x axis",
               .outputs = "y",
               .attrs = op_cum_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "running sums along an axis"},
    .infer = op_cum_infer,
    .eval = eval,
    .mixes = op_cum_mixes,
};
