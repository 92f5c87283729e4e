/* NonZero: the indices of all elements that are not zero, [rank, n] in row-major order; n is at
 * most the number of elements. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#define TYPES (OP_NUMBERS | OP_BIT(BOOL))

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_type x = op_in_type(node, 0);
    GQAC_TRY(op_check_dtype(node, 0, TYPES, diag));
    const ir_dim *dims[2] = {x.rank < 0 ? NULL : ir_dim_const(op_dims(node), x.rank), NULL};
    return op_set_type(node, 0, GQAC_I64, 2, dims, diag);
}

/* NaN is not zero. */
static bool is_set(const gqac_tensor *x, int64_t index) {
    return op_carrier_of(x->dtype) == OP_AS_F32 || x->dtype == GQAC_F64 ? op_get_f64(x, index) != 0
                                                                        : op_get_i64(x, index) != 0;
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, 0, TYPES));
    const gqac_tensor *x = call->in[0];
    const int64_t count = gqac_tensor_count(x);
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++)
        found += is_set(x, i);
    GQAC_TRY(op_output(call, 0, GQAC_I64, 2, (int64_t[]){x->rank, found}));
    int64_t *y = call->out[0].data, at = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!is_set(x, i))
            continue;
        for (int64_t axis = x->rank - 1, rest = i; axis >= 0; rest /= x->dims[axis--])
            y[axis * found + at] = rest % x->dims[axis];
        at++;
    }
    return GQAC_OK;
}

const gqac_op gqac_op_non_zero = {
    .schema = {.name = "NonZero",
               .domain = "",
               .since = 13,
               .introduced = 9,
               .inputs = "X",
               .outputs = "Y",
               .rows = IR_ROWS_MIXES,
               .doc = "indices of the elements that are not zero, [rank,n]"},
    .infer = infer,
    .eval = eval,
};
