/* ArgMin: index of the least element along one axis, i64; the first of equals (or the last, with
 * select_last_index); NaN comes before everything. Source: ONNX operator spec. */
#include "ops/reduction.h"

static gqac_status eval(op_call *call) {
    return op_arg_eval(call, true);
}

const gqac_op gqac_op_arg_min = {
    .schema = {.name = "ArgMin",
               .domain = "",
               .since = 13,
               .inputs = "data",
               .outputs = "reduced",
               .attrs = op_arg_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "index of the least element along an axis"},
    .infer = op_arg_infer,
    .eval = eval,
    .mixes = op_arg_mixes,
};
