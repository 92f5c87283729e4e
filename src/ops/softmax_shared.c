/* What Softmax, LogSoftmax and Hardmax share: rows along one axis of a tensor, each computed in
 * place or in scratch. */
#include "ops/build.h"
#include "ops/reduction.h"

#include "numerics/math.h"
#include "numerics/reduce.h"
#include "ops/kernel.h"

OP_BODY void lane_max_body(const float *x, size_t n, float *most) {
    *most = gqn_lane_max(x, n);
}
OP_KERNEL(lane_max, (const float *x, size_t n, float *most), (x, n, most))

float op_lane_max(const float *x, int64_t n) {
    float most;
    lane_max(x, (size_t)n, &most);
    return most;
}

OP_BODY void lane_sum_exp_body(const float *x, size_t n, float most, float *sum) {
    float lane[GQAC_LANES] = {0};
    size_t i = 0;
    for (; i + GQAC_LANES <= n; i += GQAC_LANES)
        GQN_EACH_LANE(j, lane[j] += gqn_expf(x[i + j] - most));
    for (size_t j = 0; i < n; i++, j++)
        lane[j] += gqn_expf(x[i] - most);
    *sum = gqn_lane_fold(lane);
}
OP_KERNEL(lane_sum_exp, (const float *x, size_t n, float most, float *sum), (x, n, most, sum))

float op_lane_sum_exp(const float *x, int64_t n, float most) {
    float sum;
    lane_sum_exp(x, (size_t)n, most, &sum);
    return sum;
}

typedef struct softmax_arg {
    const gqac_tensor *x;
    gqac_tensor *y;
    int64_t n, inner;
    op_softmax_row *compute;
    op_scratch scratch;
} softmax_arg;

static void run_rows(void *arg, size_t begin, size_t end, int worker) {
    const softmax_arg *s = arg;
    float *row = (float *)(void *)(s->scratch.base + (size_t)worker * s->scratch.stride);
    const bool direct = s->inner == 1 && s->x->dtype == GQAC_F32;
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t first = item / s->inner * s->n * s->inner + item % s->inner;
        if (direct) {
            s->compute((float *)s->y->data + first, (const float *)s->x->data + first, s->n);
            continue;
        }
        op_gather_f32(s->x, first, s->n, s->inner, row);
        s->compute(row + s->n, row, s->n);
        op_scatter_f32(s->y, first, s->n, s->inner, row + s->n);
    }
}

const ir_attr_spec op_softmax_attrs[] = {
    {.name = "axis", .kind = IR_ATTR_INT, .doc = "axis of a row; -1 when absent"},
    {.name = NULL},
};

static int64_t axis_of(const ir_node *node) {
    return ir_attr_is_set(node, "axis") ? ir_attr_int(node, "axis") : -1;
}

gqac_status op_softmax_infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    int axis;
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS, diag));
    if (type.rank > 0)
        GQAC_TRY(op_axis(node, axis_of(node), type.rank, &axis, diag));
    return op_set_type_like(node, 0, type, diag);
}

gqac_status op_softmax_eval(op_call *call, op_softmax_row *compute) {
    int axis;
    GQAC_TRY(op_want_set(call, 0, OP_FLOATS));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(op_axis(call->node, axis_of(call->node), x->rank, &axis, call->diag));
    GQAC_TRY(op_output_like(call, 0, x->dtype, x));
    if (gqac_tensor_count(x) == 0)
        return GQAC_OK;
    softmax_arg s = {.x = x, .y = &call->out[0], .n = x->dims[axis], .compute = compute};
    s.inner = op_product(x->dims, axis + 1, x->rank);
    GQAC_TRY(op_scratch_open(call, (size_t)s.n, 2 * sizeof(float), &s.scratch));
    op_parallel(call, gqac_tensor_count(x) / s.n, 20 + 2 * s.n, run_rows, &s);
    op_scratch_close(&s.scratch);
    return GQAC_OK;
}

bool op_softmax_mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, 0), (int)axis_of(node));
}

gqac_status op_softmax_upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    if (opset >= 13)
        return GQAC_OK;
    if (!ir_attr_is_set(node, "axis"))
        ir_attr_set_int(node, "axis", 1);
    const int64_t axis = axis_of(node);
    const int rank = op_in_type(node, 0).rank;
    ir_value *x = ir_node_input(node, 0), *y = ir_node_output(node, 0);
    /* Without an operand or a result there is nothing to rebuild; the check of arity reports it. */
    if (!x || !y || axis == -1 || (rank > 0 && axis == rank - 1))
        return GQAC_OK;
    ir_value *shape = OP_BUILD(b, "Shape", .in = {x});
    x = OP_BUILD(b, "Flatten", .in = {x}, .ints = {{"axis", axis}});
    ir_node_set_input(node, 0, x);
    ir_attr_set_int(node, "axis", -1);
    ir_builder after = {.graph = b->graph, .diag = b->diag, .status = b->status};
    raw->results[0] = OP_BUILD(&after, "Reshape", .in = {y, shape});
    return after.status;
}
