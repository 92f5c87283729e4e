/* Unsqueeze: inserts axes of length 1, at the indices `axes` of the result. Source: ONNX operator
 * spec. Before opset 13 axes were an attribute. */
#include "ops/copy.h"
#include "ops/reduction.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *elements[GQAC_MAX_RANK], *dims[GQAC_MAX_RANK];
    bool given, known;
    unsigned set;
    int64_t n = op_elements(node, 1, GQAC_MAX_RANK, elements);
    GQAC_TRY(op_check_list(node, 1, GQAC_MAX_RANK, diag));
    if (type.rank < 0 || n < 0)
        return op_set_type(node, 0, type.dtype, -1, NULL, diag);
    int rank = type.rank + (int)n, from = 0;
    if (rank > GQAC_MAX_RANK)
        return op_set_type(node, 0, type.dtype, rank, NULL, diag);
    GQAC_TRY(op_axes_infer(node, 1, rank, &set, &given, &known, diag));
    if (!known)
        return op_set_type(node, 0, type.dtype, rank, NULL, diag);
    for (int i = 0; i < rank; i++)
        dims[i] = set >> i & 1 ? ir_dim_const(op_dims(node), 1) : type.dims[from++];
    GQAC_TRY(op_set_type(node, 0, type.dtype, rank, dims, diag));
    return op_pass_elements(node, 0, 0, diag);
}

static gqac_status eval(op_call *call) {
    int64_t axes[GQAC_MAX_RANK], dims[GQAC_MAX_RANK], n;
    bool given;
    unsigned set;
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    GQAC_TRY(op_ints(call, 1, GQAC_MAX_RANK, axes, &n));
    const gqac_tensor *x = call->in[0];
    int rank = x->rank + (int)n, from = 0;
    if (rank > GQAC_MAX_RANK)
        OP_FAIL(call->node, call->diag, GQAC_LIMIT, "the result has rank %d, the maximum is %d",
                rank, GQAC_MAX_RANK);
    GQAC_TRY(op_axes_eval(call, 1, rank, &set, &given));
    for (int i = 0; i < rank; i++)
        dims[i] = set >> i & 1 ? 1 : x->dims[from++];
    return op_copy_as(call, rank, dims);
}

const gqac_op gqac_op_unsqueeze = {
    .schema = {.name = "Unsqueeze",
               .domain = "",
               .since = 13,
               .inputs = "data axes",
               .outputs = "expanded",
               .flags = IR_OP_IN_PLACE | IR_OP_MOVES,
               .rows = IR_ROWS_SHAPE,
               .doc = "inserts axes of length 1"},
    .infer = infer,
    .eval = eval,
    .upgrade = op_axes_upgrade,
};
