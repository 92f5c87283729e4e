/* Squeeze: removes the given axes, or all of length 1. Source: ONNX operator spec. Before opset 13
 * axes were an attribute. */
#include "ops/copy.h"
#include "ops/reduction.h"

/* The axes of length 1 of a type; false when a length is not known yet. */
static bool implied(ir_type type, unsigned *set) {
    for (int i = 0; i < type.rank; i++) {
        int64_t length;
        if (!ir_dim_is_const(type.dims[i], &length))
            return false;
        *set |= length == 1 ? 1u << i : 0u;
    }
    return true;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    bool given, known;
    unsigned set = 0;
    int rank = 0;
    int64_t length;
    GQAC_TRY(op_check_list(node, 1, GQAC_MAX_RANK, diag));
    if (type.rank < 0)
        return op_set_type(node, 0, type.dtype, -1, NULL, diag);
    GQAC_TRY(op_axes_infer(node, 1, type.rank, &set, &given, &known, diag));
    if (!known || (!given && !implied(type, &set)))
        return op_set_type(node, 0, type.dtype, -1, NULL, diag);
    for (int i = 0; i < type.rank; i++) {
        if (!(set >> i & 1))
            dims[rank++] = type.dims[i];
        else if (ir_dim_is_const(type.dims[i], &length) && length != 1)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "axis %d has the length %lld, not 1", i,
                    (long long)length);
    }
    GQAC_TRY(op_set_type(node, 0, type.dtype, rank, dims, diag));
    return op_pass_elements(node, 0, 0, diag);
}

static gqac_status eval(op_call *call) {
    int64_t dims[GQAC_MAX_RANK];
    bool given;
    unsigned set;
    int rank = 0;
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(op_axes_eval(call, 1, x->rank, &set, &given));
    for (int i = 0; i < x->rank; i++) {
        bool out = given ? set >> i & 1 : x->dims[i] == 1;
        if (!out)
            dims[rank++] = x->dims[i];
        else if (x->dims[i] != 1)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "axis %d has the length %lld, not 1", i, (long long)x->dims[i]);
    }
    return op_copy_as(call, rank, dims);
}

const gqac_op gqac_op_squeeze = {
    .schema = {.name = "Squeeze",
               .domain = "",
               .since = 13,
               .inputs = "data axes?",
               .outputs = "squeezed",
               .flags = IR_OP_IN_PLACE | IR_OP_MOVES,
               .rows = IR_ROWS_SHAPE,
               .doc = "removes axes of length 1"},
    .infer = infer,
    .eval = eval,
    .upgrade = op_axes_upgrade,
};
