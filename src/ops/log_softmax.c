/* LogSoftmax: y = (x - max) - log(sum exp(x - max)) along one axis. Source: ONNX operator spec, 13.
 * Maximum and sum by 16 lanes and their trees (numerics/reduce.h), as in Softmax. */
#include "ops/shared.h"

#include "numerics/math.h"
#include "numerics/reduce.h"

typedef struct rows_of {
    const gqac_tensor *x;
    gqac_tensor *y;
    int64_t n, inner;
    op_scratch scratch;
} rows_of;

static void run_rows(void *arg, size_t begin, size_t end, int worker) {
    const rows_of *s = arg;
    float *row = (float *)(void *)(s->scratch.base + (size_t)worker * s->scratch.stride);
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t first = item / s->inner * s->n * s->inner + item % s->inner;
        float lane[GQAC_LANES] = {0};
        op_gather_f32(s->x, first, s->n, s->inner, row);
        float most = gqn_lane_max(row, (size_t)s->n);
        for (int64_t i = 0; i < s->n; i++)
            lane[i % GQAC_LANES] += gqn_expf(row[i] - most);
        float log_sum = gqn_logf(gqn_lane_fold(lane));
        for (int64_t i = 0; i < s->n; i++)
            row[i] = (row[i] - most) - log_sum;
        op_scatter_f32(s->y, first, s->n, s->inner, row);
    }
}

static int64_t axis_of(const ir_node *node) {
    return ir_attr_is_set(node, "axis") ? ir_attr_int(node, "axis") : -1;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    int axis;
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS, diag));
    if (type.rank > 0)
        GQAC_TRY(op_axis(node, axis_of(node), type.rank, &axis, diag));
    return op_set_type_like(node, 0, type, diag);
}

static gqac_status eval(op_call *call) {
    int axis;
    GQAC_TRY(op_want_set(call, 0, OP_FLOATS));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(op_axis(call->node, axis_of(call->node), x->rank, &axis, call->diag));
    GQAC_TRY(op_output_like(call, 0, x->dtype, x));
    if (gqac_tensor_count(x) == 0)
        return GQAC_OK;
    rows_of s = {.x = x, .y = &call->out[0], .n = x->dims[axis]};
    s.inner = op_product(x->dims, axis + 1, x->rank);
    GQAC_TRY(op_scratch_open(call, (size_t)s.n, sizeof(float), &s.scratch));
    op_parallel(call, gqac_tensor_count(x) / s.n, 20 + 5 * s.n, run_rows, &s);
    op_scratch_close(&s.scratch);
    return GQAC_OK;
}

static bool mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, 0), (int)axis_of(node));
}

/* Before opset 13 the axis split the tensor into a matrix: the same for the last axis only. */
static gqac_status upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    (void)raw;
    if (opset >= 13)
        return GQAC_OK;
    if (!ir_attr_is_set(node, "axis"))
        ir_attr_set_int(node, "axis", 1);
    int rank = op_in_type(node, 0).rank;
    if (axis_of(node) != -1 && (rank < 1 || axis_of(node) != rank - 1))
        OP_FAIL(node, b->diag, GQAC_UNSUPPORTED,
                "opset %d LogSoftmax over axis %lld, which is not known to be the last", opset,
                (long long)axis_of(node));
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    {.name = "axis", .kind = IR_ATTR_INT, .doc = "axis of a row; -1 when absent"},
    {.name = NULL},
};

const gqac_op gqac_op_log_softmax = {
    .schema = {.name = "LogSoftmax",
               .domain = "",
               .since = 13,
               .inputs = "input",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "y = log(softmax(x)) along an axis"},
    .infer = infer,
    .eval = eval,
    .upgrade = upgrade,
    .mixes = mixes,
};
