/* Trilu: the upper (column - row >= k) or lower (column - row <= k) triangle of the last two axes,
 * zeros elsewhere. Source: ONNX operator spec. */
#include "ops/shared.h"

#include <string.h>

typedef struct trilu_arg {
    const gqac_tensor *in;
    gqac_tensor *out;
    int64_t rows, columns, k;
    bool upper;
} trilu_arg;

static void run_rows(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const trilu_arg *t = arg;
    size_t width = op_width(t->in->dtype);
    for (size_t item = begin; item < end; item++) {
        int64_t row = (int64_t)item % t->rows, from, to;
        /* columns [from, to) stay; row + k would overflow for some k */
        int64_t edge = t->k >= t->columns ? t->columns : t->k + row;
        if (t->k < -t->rows)
            edge = -1;
        from = t->upper ? (edge < 0 ? 0 : edge > t->columns ? t->columns : edge) : 0;
        to = t->upper ? t->columns : edge < 0 ? 0 : edge >= t->columns ? t->columns : edge + 1;
        size_t base = item * (size_t)t->columns * width;
        const unsigned char *source = t->in->data;
        unsigned char *target = t->out->data;
        memset(target + base, 0, (size_t)t->columns * width);
        memcpy(target + base + (size_t)from * width, source + base + (size_t)from * width,
               (size_t)(to - from) * width);
    }
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    GQAC_TRY(op_check_dtype(node, 0, OP_NUMBERS | OP_BIT(BOOL), diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_INTS | OP_BIT(BOOL), diag));
    GQAC_TRY(op_check_single(node, 1, diag));
    if (type.rank >= 0 && type.rank < 2)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the input has rank %d: must be at least 2",
                type.rank);
    return op_set_type_like(node, 0, type, diag);
}

static gqac_status eval(op_call *call) {
    int64_t k = 0;
    GQAC_TRY(op_want_set(call, 0, OP_NUMBERS | OP_BIT(BOOL)));
    const gqac_tensor *in = call->in[0];
    if (in->rank < 2)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "the input has rank %d: must be at least 2", in->rank);
    if (ir_node_input(call->node, 1))
        GQAC_TRY(op_int(call, 1, &k));
    GQAC_TRY(op_output_like(call, 0, in->dtype, in));
    if (gqac_tensor_count(in) == 0)
        return GQAC_OK;
    trilu_arg t = {.in = in,
                   .out = &call->out[0],
                   .rows = in->dims[in->rank - 2],
                   .columns = in->dims[in->rank - 1],
                   .k = k,
                   .upper = ir_attr_int(call->node, "upper") != 0};
    op_parallel(call, gqac_tensor_count(in) / t.columns, 20 + t.columns / 4, run_rows, &t);
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("upper", 1, "1: the upper triangle, 0: the lower"),
    {.name = NULL},
};

static bool mixes(const ir_node *node) {
    const ir_value *x = ir_node_input(node, 0);
    return op_axis_is_row(x, -1) || op_axis_is_row(x, -2);
}

const gqac_op gqac_op_trilu = {
    .schema = {.name = "Trilu",
               .domain = "",
               .since = 14,
               .introduced = 14,
               .inputs = "input k?",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "upper or lower triangle of the last two axes"},
    .infer = infer,
    .eval = eval,
    .mixes = mixes,
};
