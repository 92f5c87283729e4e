/* What ArgMax and ArgMin share: the search along one axis. A NaN wins over every number. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

enum { ROW_COST = 20 /* ns of a row, besides 1 ns an element: see op_parallel */ };

typedef struct arg_search {
    const gqac_tensor *x;
    int64_t *y;
    int64_t n, inner;
    bool last; /* of equal elements the last, not the first */
    op_order order;
} arg_search;

/* The index of the greatest key: the last one with `last`, else the first. */
static int64_t position_of(const int64_t *keys, int64_t n, int64_t greatest, bool last) {
    int64_t at = last ? n - 1 : 0;
    while (keys[at] != greatest)
        at += last ? -1 : 1;
    return at;
}

static void run_rows(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const arg_search *s = arg;
    int64_t keys[OP_SPAN];
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t first = item / s->inner * s->n * s->inner + item % s->inner, best = 0;
        for (int64_t from = 0; from < s->n; from += OP_SPAN) {
            const int64_t n = s->n - from < OP_SPAN ? s->n - from : OP_SPAN;
            op_order_keys(s->x, first + from * s->inner, n, s->inner, &s->order, keys);
            const int64_t greatest = op_order_greatest(keys, n);
            if (from == 0 || greatest > best || (s->last && greatest == best)) {
                best = greatest;
                s->y[item] = from + position_of(keys, n, greatest, s->last);
            }
        }
    }
}

/* Sets from[i] to the axis of x whose length axis i of the output has; -1: its length is 1. Returns
 * the rank of the output. */
static int output_axes(const ir_node *node, int rank, int axis, int *from) {
    int n = 0;
    for (int i = 0; i < rank; i++)
        if (i != axis)
            from[n++] = i;
        else if (ir_attr_int(node, "keepdims"))
            from[n++] = -1;
    return n;
}

gqac_status op_arg_infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    int axis = 0, from[GQAC_MAX_RANK];
    GQAC_TRY(op_check_dtype(node, 0, OP_NUMBERS, diag));
    if (type.rank < 0)
        return op_set_type(node, 0, GQAC_I64, -1, NULL, diag);
    GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), type.rank, &axis, diag));
    const int rank = output_axes(node, type.rank, axis, from);
    for (int i = 0; i < rank; i++)
        dims[i] = from[i] < 0 ? ir_dim_const(op_dims(node), 1) : type.dims[from[i]];
    return op_set_type(node, 0, GQAC_I64, rank, dims, diag);
}

gqac_status op_arg_eval(op_call *call, bool least) {
    const ir_node *node = call->node;
    int axis, from[GQAC_MAX_RANK];
    int64_t dims[GQAC_MAX_RANK];
    GQAC_TRY(op_want_set(call, 0, OP_NUMBERS));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(op_axis(node, ir_attr_int(node, "axis"), x->rank, &axis, call->diag));
    const int rank = output_axes(node, x->rank, axis, from);
    for (int i = 0; i < rank; i++)
        dims[i] = from[i] < 0 ? 1 : x->dims[from[i]];
    GQAC_TRY(op_output(call, 0, GQAC_I64, rank, dims));
    int64_t rows = gqac_tensor_count(&call->out[0]);
    if (rows > 0 && x->dims[axis] == 0)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "axis %d has no elements", axis);
    arg_search s = {.x = x,
                    .y = call->out[0].data,
                    .n = x->dims[axis],
                    .inner = op_product(x->dims, axis + 1, x->rank),
                    .order = {.least = least, .nan_first = true},
                    .last = ir_attr_int(node, "select_last_index") != 0};
    op_parallel(call, rows, ROW_COST + s.n, run_rows, &s);
    return GQAC_OK;
}

bool op_arg_mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, 0), (int)ir_attr_int(node, "axis"));
}

const ir_attr_spec op_arg_attrs[] = {
    OP_ATTR_INT("axis", 0, "axis to search"),
    OP_ATTR_INT("keepdims", 1, "1: the axis stays, with length 1"),
    OP_ATTR_INT("select_last_index", 0, "1: of equal elements the last"),
    {.name = NULL},
};
