/* ArgMax: index of the greatest element along one axis, i64; the first of equals (or the last, with
 * select_last_index); NaN comes before everything. Source: ONNX operator spec. */
#include "ops/reduction.h"

static gqac_status eval(op_call *call) {
    return op_arg_eval(call, false);
}

const gqac_op gqac_op_arg_max = OP_ARG_ROW(.name = "ArgMax", .domain = "", .since = 13,
                                           .doc = "index of the greatest element along an axis");
