/* ArgMax: index of the greatest element along one axis, i64; the first of equals (or the last, with
 * select_last_index); NaN is greater than everything. Source: ONNX operator spec. */
#include "ops/shared.h"

typedef struct arg_max_arg {
    const gqac_tensor *x;
    int64_t *y;
    int64_t n, inner;
    bool last;
} arg_max_arg;

/* 1: a is greater than b, 0: equal, -1: less. */
static int compare(const gqac_tensor *x, int64_t a, int64_t b) {
    if (op_carrier_of(x->dtype) == OP_AS_I64) {
        int64_t p = op_get_i64(x, a), q = op_get_i64(x, b);
        if (x->dtype == GQAC_U64)
            return ((uint64_t)p > (uint64_t)q) - ((uint64_t)p < (uint64_t)q);
        return (p > q) - (p < q);
    }
    double p = op_get_f64(x, a), q = op_get_f64(x, b);
    if (p != p || q != q)
        return (p != p) - (q != q);
    return (p > q) - (p < q);
}

static void run_rows(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const arg_max_arg *s = arg;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t first = item / s->inner * s->n * s->inner + item % s->inner, best = 0;
        for (int64_t i = 1; i < s->n; i++) {
            int order = compare(s->x, first + i * s->inner, first + best * s->inner);
            if (order > 0 || (order == 0 && s->last))
                best = i;
        }
        s->y[item] = best;
    }
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    int axis = 0, rank = 0;
    GQAC_TRY(op_check_dtype(node, 0, OP_NUMBERS, diag));
    if (type.rank < 0)
        return op_set_type(node, 0, GQAC_I64, -1, NULL, diag);
    GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), type.rank, &axis, diag));
    for (int i = 0; i < type.rank; i++) {
        if (i != axis)
            dims[rank++] = type.dims[i];
        else if (ir_attr_int(node, "keepdims"))
            dims[rank++] = ir_dim_const(op_dims(node), 1);
    }
    return op_set_type(node, 0, GQAC_I64, rank, dims, diag);
}

static gqac_status eval(op_call *call) {
    const ir_node *node = call->node;
    int axis, rank = 0;
    int64_t dims[GQAC_MAX_RANK];
    GQAC_TRY(op_want_set(call, 0, OP_NUMBERS));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), x->rank, &axis, call->diag));
    for (int i = 0; i < x->rank; i++) {
        if (i != axis)
            dims[rank++] = x->dims[i];
        else if (ir_attr_int(node, "keepdims"))
            dims[rank++] = 1;
    }
    GQAC_TRY(op_output(call, 0, GQAC_I64, rank, dims));
    int64_t rows = gqac_tensor_count(&call->out[0]);
    if (rows > 0 && x->dims[axis] == 0)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "axis %d has no elements", axis);
    arg_max_arg s = {.x = x,
                     .y = call->out[0].data,
                     .n = x->dims[axis],
                     .inner = op_product(x->dims, axis + 1, x->rank),
                     .last = ir_attr_int(node, "select_last_index") != 0};
    op_parallel(call, rows, 20 + 4 * s.n, run_rows, &s);
    return GQAC_OK;
}

static bool mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, 0), (int)ir_attr_int(node, "axis"));
}

static const ir_attr_spec attrs[] = {
    {.name = "axis",
     .kind = IR_ATTR_INT,
     .fallback = {.set = true, .i = 0},
     .doc = "axis to search"},
    {.name = "keepdims",
     .kind = IR_ATTR_INT,
     .fallback = {.set = true, .i = 1},
     .doc = "1: the axis stays, with length 1"},
    {.name = "select_last_index",
     .kind = IR_ATTR_INT,
     .fallback = {.set = true, .i = 0},
     .doc = "1: the last of equals"},
    {.name = NULL},
};

const gqac_op gqac_op_arg_max = {
    .schema = {.name = "ArgMax",
               .domain = "",
               .since = 13,
               .inputs = "data",
               .outputs = "reduced",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "index of the greatest element along an axis"},
    .infer = infer,
    .eval = eval,
    .mixes = mixes,
};
