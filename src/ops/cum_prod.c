/* CumProd: running products along one axis. Source: ONNX operator spec. */
#include "ops/reduction.h"

static gqac_status eval(op_call *call) {
    return op_cum_eval(call, true);
}

const gqac_op gqac_op_cum_prod = {
    .schema = {.name = "CumProd",
               .domain = "",
               .since = 26,
               .introduced = 26,
               .inputs = "x axis",
               .outputs = "y",
               .attrs = op_cum_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "running products along an axis"},
    .infer = op_cum_infer,
    .eval = eval,
    .mixes = op_cum_mixes,
};
