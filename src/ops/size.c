/* Size: number of elements of the input, an i64 scalar. Source: ONNX operator spec. */
#include "ops/shared.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    GQAC_TRY(op_set_type(node, 0, GQAC_I64, 0, NULL, diag));
    if (type.rank < 0)
        return GQAC_OK;
    const ir_dim *product = ir_dim_const(op_dims(node), 1);
    for (int i = 0; i < type.rank; i++)
        product = ir_dim_mul(op_dims(node), product, type.dims[i]);
    return op_set_elements(node, 0, 1, &product, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    GQAC_TRY(op_output(call, 0, GQAC_I64, 0, (int64_t[]){0}));
    *(int64_t *)call->out[0].data = gqac_tensor_count(call->in[0]);
    return GQAC_OK;
}

const gqac_op gqac_op_size = {
    .schema = {.name = "Size",
               .domain = "",
               .since = 13,
               .inputs = "data",
               .outputs = "size",
               .rows = IR_ROWS_SHAPE,
               .doc = "number of elements of the input"},
    .infer = infer,
    .eval = eval,
};
