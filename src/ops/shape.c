/* Shape: dimensions start to end of the input as i64. Source: ONNX operator spec. */
#include "ops/shared.h"

void op_shape_range(const ir_node *shape, int rank, int *start, int *end) {
    int64_t from = ir_attr_int(shape, "start");
    int64_t to = ir_attr_is_set(shape, "end") ? ir_attr_int(shape, "end") : rank;
    from = from < 0 ? from + rank : from;
    to = to < 0 ? to + rank : to;
    *start = (int)(from < 0 ? 0 : from > rank ? rank : from);
    *end = (int)(to < *start ? *start : to > rank ? rank : to);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    int start, end;
    if (type.rank < 0)
        return op_set_type(node, 0, GQAC_I64, 1, NULL, diag);
    op_shape_range(node, type.rank, &start, &end);
    const ir_dim *length = ir_dim_const(op_dims(node), end - start);
    GQAC_TRY(op_set_type(node, 0, GQAC_I64, 1, &length, diag));
    const ir_dim *const *first = end > start ? &type.dims[start] : &length;
    return op_set_elements(node, 0, end - start, first, diag);
}

static gqac_status eval(op_call *call) {
    int start, end;
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    const gqac_tensor *x = call->in[0];
    op_shape_range(call->node, x->rank, &start, &end);
    GQAC_TRY(op_output(call, 0, GQAC_I64, 1, (int64_t[]){end - start}));
    for (int i = start; i < end; i++)
        ((int64_t *)call->out[0].data)[i - start] = x->dims[i];
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("start", 0, "first axis; negative counts from the end"),
    {.name = "end", .kind = IR_ATTR_INT, .doc = "axis after the last; absent: all"},
    {.name = NULL},
};

const gqac_op gqac_op_shape = {
    .schema = {.name = "Shape",
               .domain = "",
               .since = 15,
               .inputs = "data",
               .outputs = "shape",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "dimensions start to end of the input"},
    .infer = infer,
    .eval = eval,
};
