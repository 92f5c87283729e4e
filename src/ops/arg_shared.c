/* What ArgMax and ArgMin share: the search along one axis. NaN is found before everything else. */
#include "ops/shared.h"

typedef struct arg_search {
    const gqac_tensor *x;
    int64_t *y;
    int64_t n, inner;
    bool last, least;
} arg_search;

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

static bool is_nan(const gqac_tensor *x, int64_t a) {
    return op_carrier_of(x->dtype) != OP_AS_I64 && op_get_f64(x, a) != op_get_f64(x, a);
}

/* NaN comes before everything here too. */
static bool less(const gqac_tensor *x, int64_t a, int64_t b) {
    if (is_nan(x, a) || is_nan(x, b))
        return is_nan(x, a) && !is_nan(x, b);
    return compare(x, a, b) < 0;
}

static void run_rows(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const arg_search *s = arg;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t first = item / s->inner * s->n * s->inner + item % s->inner, best = 0;
        for (int64_t i = 1; i < s->n; i++) {
            int order = compare(s->x, first + i * s->inner, first + best * s->inner);
            if ((s->least ? less(s->x, first + i * s->inner, first + best * s->inner)
                          : order > 0) ||
                (order == 0 && s->last))
                best = i;
        }
        s->y[item] = best;
    }
}

gqac_status op_arg_infer(ir_node *node, gqac_diag *diag) {
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

gqac_status op_arg_eval(op_call *call, bool least) {
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
    arg_search s = {.x = x,
                    .y = call->out[0].data,
                    .n = x->dims[axis],
                    .inner = op_product(x->dims, axis + 1, x->rank),
                    .least = least,
                    .last = ir_attr_int(node, "select_last_index") != 0};
    op_parallel(call, rows, 20 + 4 * s.n, run_rows, &s);
    return GQAC_OK;
}

bool op_arg_mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, 0), (int)ir_attr_int(node, "axis"));
}

const ir_attr_spec op_arg_attrs[] = {
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
