/* ArgMin: index of the least element along one axis, i64; of equal elements the first (with
 * select_last_index the last); NaN is less than every number. Source: ONNX operator spec. */
#include "ops/reduction.h"

static gqac_status eval(op_call *call) {
    return op_arg_eval(call, true);
}

const gqac_op gqac_op_arg_min = OP_ARG_ROW(.name = "ArgMin", .domain = "", .since = 13,
                                           .doc = "index of the least element along an axis");
