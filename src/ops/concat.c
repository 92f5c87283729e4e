/* Concat: inputs joined along one axis. Source: ONNX operator spec. Rows are moved, not mixed. */
#include "ops/copy.h"

static gqac_status infer_elements(ir_node *node, gqac_diag *diag) {
    const ir_dim *all[OP_MAX_ELEMENTS] = {NULL};
    int64_t n = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        int64_t count = op_elements(node, i, OP_MAX_ELEMENTS - n, all + n), length;
        if (count < 0) {
            if (!ir_dim_is_const(op_in_dim(node, i, 0), &length) || length > OP_MAX_ELEMENTS - n)
                return GQAC_OK;
            for (count = 0; count < length; count++)
                all[n + count] = NULL;
        }
        n += count;
    }
    return op_set_elements(node, 0, n, all, diag);
}

static gqac_status join(ir_node *node, ir_type next, int axis, ir_type *all, const ir_dim **dims,
                        gqac_diag *diag) {
    int64_t x, y;
    if (next.rank != all->rank)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "inputs have the ranks %d and %d", all->rank,
                next.rank);
    for (int i = 0; i < all->rank; i++) {
        if (i == axis) {
            dims[i] = ir_dim_add(op_dims(node), dims[i], next.dims[i]);
            continue;
        }
        bool a = ir_dim_is_const(dims[i], &x), b = ir_dim_is_const(next.dims[i], &y);
        if (a && b && x != y)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "inputs have different lengths along axis %d: %lld and %lld", i, (long long)x,
                    (long long)y);
        if (!dims[i] || b)
            dims[i] = next.dims[i];
    }
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type all = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    int axis = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        ir_type next = op_in_type(node, i);
        GQAC_TRY(op_check_dtype(node, i, OP_ANY, diag));
        GQAC_TRY(op_check_same(node, 0, i, diag));
        if (all.rank < 0 || next.rank < 0) {
            all.rank = -1;
            continue;
        }
        GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), all.rank, &axis, diag));
        if (i == 0)
            for (int k = 0; k < all.rank; k++)
                dims[k] = all.dims[k];
        else
            GQAC_TRY(join(node, next, axis, &all, dims, diag));
    }
    GQAC_TRY(op_set_type(node, 0, all.dtype, all.rank, dims, diag));
    return all.rank == 1 ? infer_elements(node, diag) : GQAC_OK;
}

static gqac_status shape_of(op_call *call, int axis, int64_t *dims) {
    const gqac_tensor *first = call->in[0];
    for (int k = 0; k < first->rank; k++)
        dims[k] = first->dims[k];
    for (int i = 1; i < call->node->n_inputs; i++) {
        GQAC_TRY(op_want(call, i, first->dtype));
        const gqac_tensor *next = call->in[i];
        bool fits = next->rank == first->rank;
        for (int k = 0; fits && k < next->rank; k++)
            fits = k == axis || next->dims[k] == dims[k];
        if (!fits || __builtin_add_overflow(dims[axis], next->dims[axis], &dims[axis]))
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "the shape of input %d does not fit that of input 0", i);
    }
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    int axis;
    int64_t dims[GQAC_MAX_RANK], at = 0;
    GQAC_TRY(op_want_set(call, 0, OP_ANY));
    const gqac_tensor *first = call->in[0];
    GQAC_TRY(op_axis(call->node, ir_attr_int(call->node, "axis"), first->rank, &axis, call->diag));
    GQAC_TRY(shape_of(call, axis, dims));
    GQAC_TRY(op_copy_output(call, 0, first->dtype, first->rank, dims));
    for (int i = 0; i < call->node->n_inputs; i++) {
        const gqac_tensor *in = call->in[i];
        op_box box = {.rank = in->rank, .in = in, .out = &call->out[0]};
        for (int k = 0; k < in->rank; k++)
            box.dims[k] = in->dims[k];
        op_strides(in->rank, in->dims, box.stride_in);
        op_strides(in->rank, dims, box.stride_out);
        box.first_out = at * box.stride_out[axis];
        at += in->dims[axis];
        GQAC_TRY(op_move(call, &box));
    }
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    {.name = "axis", .kind = IR_ATTR_INT, .required = true, .doc = "axis to join along"},
    {.name = NULL},
};

const gqac_op gqac_op_concat = {
    .schema = {.name = "Concat",
               .domain = "",
               .since = 13,
               .inputs = "inputs+",
               .outputs = "concat_result",
               .attrs = attrs,
               .flags = IR_OP_MOVES,
               .rows = IR_ROWS_SHAPE,
               .doc = "inputs joined along an axis"},
    .infer = infer,
    .eval = eval,
    .mixes = op_axis_mixes,
};
