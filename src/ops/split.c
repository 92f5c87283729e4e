/* Split: the input cut along one axis into pieces of the lengths `split`, or into num_outputs equal
 * ones (the last may be shorter). Source: ONNX operator spec. Before opset 13 split was an
 * attribute; before 18 num_outputs was the number of the outputs. */
#include "ops/copy.h"

#include <string.h>

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    bool counted = ir_attr_is_set(node, "num_outputs");
    if (counted && ir_attr_int(node, "num_outputs") != node->n_outputs)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "num_outputs is %lld, but there are %d outputs",
                (long long)ir_attr_int(node, "num_outputs"), node->n_outputs);
    return GQAC_OK;
}

/* Length of piece i of n equal ones. */
static int64_t equal_piece(int64_t length, int n, int i) {
    int64_t piece = length / n + (length % n != 0);
    int64_t left = i > 0 && piece > length / i ? 0 : length - piece * i;
    return left < piece ? left : piece;
}

static const ir_dim *piece_dim(ir_node *node, const ir_dim *length, int i) {
    const ir_dim *pieces[OP_MAX_ELEMENTS];
    int64_t n;
    if (ir_node_input(node, 1))
        return op_elements(node, 1, OP_MAX_ELEMENTS, pieces) > i ? pieces[i] : NULL;
    if (ir_dim_is_const(length, &n))
        return ir_dim_const(op_dims(node), equal_piece(n, node->n_outputs, i));
    return length ? ir_dim_div_exact(op_dims(node), length,
                                     ir_dim_const(op_dims(node), node->n_outputs))
                  : NULL;
}

/* Checks constants: one length for each output, with the length of the axis as their sum. */
static gqac_status check_pieces(const ir_node *node, const ir_dim *length, gqac_diag *diag) {
    const ir_dim *pieces[OP_MAX_ELEMENTS];
    int64_t n = op_elements(node, 1, OP_MAX_ELEMENTS, pieces), sum = 0, piece, whole;
    if (n >= 0 && n != node->n_outputs)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld lengths for %d outputs", (long long)n,
                node->n_outputs);
    for (int64_t i = 0; i < n; i++) {
        if (!ir_dim_is_const(pieces[i], &piece))
            return GQAC_OK;
        if (piece < 0 || __builtin_add_overflow(sum, piece, &sum))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "the length %lld of an output is negative, or the sum is too large",
                    (long long)piece);
    }
    if (n >= 0 && ir_dim_is_const(length, &whole) && sum != whole)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the pieces add up to %lld, the axis has %lld",
                (long long)sum, (long long)whole);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK], *x[OP_MAX_ELEMENTS];
    int axis = 0;
    int64_t piece, at = 0, n = op_elements(node, 0, OP_MAX_ELEMENTS, x);
    GQAC_TRY(op_check_list(node, 1, INT64_MAX, diag));
    if (type.rank >= 0)
        GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), type.rank, &axis, diag));
    GQAC_TRY(check_pieces(node, op_in_dim(node, 0, axis), diag));
    for (int k = 0; k < type.rank; k++)
        dims[k] = type.dims[k];
    for (int i = 0; i < node->n_outputs; i++) {
        if (type.rank >= 0)
            dims[axis] = piece_dim(node, type.dims[axis], i);
        GQAC_TRY(op_set_type(node, i, type.dtype, type.rank, dims, diag));
        if (type.rank != 1 || at < 0 || !ir_dim_is_const(dims[0], &piece) || piece < 0 ||
            piece > n - at) {
            at = -1;
            continue;
        }
        GQAC_TRY(op_set_elements(node, i, piece, x + at, diag));
        at += piece;
    }
    return GQAC_OK;
}

static gqac_status read_pieces(op_call *call, int64_t length, int64_t *pieces) {
    const ir_node *node = call->node;
    int64_t count = node->n_outputs, sum = 0;
    for (int i = 0; i < node->n_outputs; i++)
        pieces[i] = equal_piece(length, node->n_outputs, i);
    if (ir_node_input(node, 1))
        GQAC_TRY(op_ints(call, 1, node->n_outputs, pieces, &count));
    bool fits = count == node->n_outputs;
    for (int64_t i = 0; i < count && fits; i++)
        fits = pieces[i] >= 0 && !__builtin_add_overflow(sum, pieces[i], &sum);
    if (!fits || sum != length)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "the pieces do not add up to %lld",
                (long long)length);
    return GQAC_OK;
}

static gqac_status cut(op_call *call, int axis, const int64_t *pieces) {
    const gqac_tensor *in = call->in[0];
    int64_t strides[GQAC_MAX_RANK], at = 0;
    op_strides(in->rank, in->dims, strides);
    for (int i = 0; i < call->node->n_outputs; i++) {
        op_box box = {.rank = in->rank, .in = in, .out = &call->out[i]};
        for (int k = 0; k < in->rank; k++) {
            box.dims[k] = k == axis ? pieces[i] : in->dims[k];
            box.stride_in[k] = strides[k];
        }
        box.first_in = at * strides[axis];
        at += pieces[i];
        if (!call->node->outputs[i])
            continue;
        GQAC_TRY(op_copy_output(call, i, in->dtype, in->rank, box.dims));
        op_strides(in->rank, box.dims, box.stride_out);
        GQAC_TRY(op_move(call, &box));
    }
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    int axis;
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    GQAC_TRY(verify(call->node, call->diag));
    const gqac_tensor *in = call->in[0];
    GQAC_TRY(op_axis(call->node, ir_attr_int(call->node, "axis"), in->rank, &axis, call->diag));
    op_scratch scratch;
    GQAC_TRY(op_scratch_open_one(call, (size_t)call->node->n_outputs, sizeof(int64_t), &scratch));
    int64_t *pieces = (int64_t *)(void *)scratch.base;
    memset(pieces, 0, (size_t)call->node->n_outputs * sizeof *pieces);
    gqac_status status = read_pieces(call, in->dims[axis], pieces);
    if (status == GQAC_OK)
        status = cut(call, axis, pieces);
    op_scratch_close(&scratch);
    return status;
}

static gqac_status upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    if (opset < 13)
        GQAC_TRY(op_ints_to_input(b, node, raw, "split", 1));
    if (opset < 18 && !ir_node_input(node, 1))
        ir_attr_set_int(node, "num_outputs", node->n_outputs);
    return b->status;
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("axis", 0, "axis to cut"),
    {.name = "num_outputs", .kind = IR_ATTR_INT, .doc = "number of equal pieces"},
    {.name = NULL},
};

const gqac_op gqac_op_split = {
    .schema = {.name = "Split",
               .domain = "",
               .since = 18,
               .inputs = "input split?",
               .outputs = "outputs+",
               .attrs = attrs,
               .flags = IR_OP_MOVES,
               .rows = IR_ROWS_SHAPE,
               .doc = "the input cut along an axis"},
    .verify = verify,
    .infer = infer,
    .eval = eval,
    .mixes = op_axis_mixes,
    .upgrade = upgrade,
};
