/* ArgMax: index of the greatest element along one axis, i64; of equal elements the first (with
 * select_last_index the last); NaN is greater than every number. Source: ONNX operator spec. */
#include "ops/reduction.h"

static gqac_status eval(op_call *call) {
    return op_arg_eval(call, false);
}

const gqac_op gqac_op_arg_max = OP_ARG_ROW(.name = "ArgMax", .domain = "", .since = 13,
                                           .doc = "index of the greatest element along an axis");
