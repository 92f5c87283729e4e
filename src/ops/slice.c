/* Slice: start, start + step, ... up to end, which is excluded, along some axes; negative positions
 * count from the end, and all are clamped. Source: ONNX operator spec. Before opset 10 starts, ends
 * and axes were attributes.
 *
 * Rows are selected, not mixed: an output row is an input row however tokens are split. */
#include "ops/copy.h"

/* ---- one axis ------------------------------------------------------------ */

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

/* First position and count of the elements of an axis of `length`; false for a step of 0. */
static bool resolve(int64_t length, int64_t *start, int64_t end, int64_t *step, int64_t *count) {
    if (*step == 0)
        return false;
    *step = clamp(*step, -INT64_MAX, INT64_MAX);
    bool up = *step > 0;
    if (length == 0) {
        *count = 0;
        return true;
    }
    int64_t hi = up ? length : length - 1;
    *start = clamp(*start < 0 ? *start + length : *start, 0, hi);
    end = clamp(end < 0 ? end + length : end, up ? 0 : -1, hi);
    int64_t span = up ? end - *start : *start - end, stride = up ? *step : -*step;
    *count = span > 0 ? (span - 1) / stride + 1 : 0;
    return true;
}

/* ---- infer --------------------------------------------------------------- */

/* A position clamped to [0, length] (steps > 0); NULL when its sign is not known. */
static const ir_dim *clamp_dim(ir_dims *d, const ir_dim *x, const ir_dim *length) {
    int64_t value;
    const ir_dim *zero = ir_dim_const(d, 0);
    if (ir_dim_is_const(x, &value)) {
        if (value >= INT32_MAX) /* how exporters write "to the end" */
            return length;
        if (value <= INT32_MIN)
            return zero;
    }
    if (op_dim_nonneg(d, x))
        return op_dim_min(d, x, length);
    return op_dim_negative(d, x) ? ir_dim_max(d, ir_dim_add(d, length, x), zero) : NULL;
}

static const ir_dim *sliced(ir_dims *d, const ir_dim *length, const ir_dim *start,
                            const ir_dim *end, const ir_dim *step) {
    int64_t n, from, to, by, count;
    bool consts = ir_dim_is_const(start, &from) && ir_dim_is_const(end, &to);
    if (!length || !ir_dim_is_const(step, &by))
        return NULL;
    if (consts && ir_dim_is_const(length, &n))
        return resolve(n, &from, to, &by, &count) ? ir_dim_const(d, count) : NULL;
    if (consts && by == -1 && (from == -1 || from >= INT32_MAX) && to <= INT32_MIN)
        return length; /* reversed */
    if (by < 1 || by == INT64_MAX)
        return NULL;
    const ir_dim *span = ir_dim_sub(d, clamp_dim(d, end, length), clamp_dim(d, start, length));
    span = ir_dim_max(d, span, ir_dim_const(d, 0));
    if (by > 1 && span)
        span = ir_dim_floordiv(d, ir_dim_add(d, span, ir_dim_const(d, by - 1)), by);
    return span;
}

static gqac_status infer_elements(ir_node *node, const ir_dim *const *part, gqac_diag *diag) {
    const ir_dim *x[OP_MAX_ELEMENTS], *out[OP_MAX_ELEMENTS];
    int64_t v[3], count, n = op_elements(node, 0, OP_MAX_ELEMENTS, x);
    if (n < 0 || op_in_type(node, 0).rank != 1)
        return GQAC_OK;
    for (int k = 0; k < 3; k++)
        if (!ir_dim_is_const(part[k], &v[k]))
            return GQAC_OK;
    if (!resolve(n, &v[0], v[1], &v[2], &count))
        return GQAC_OK;
    for (int64_t i = 0; i < count; i++)
        out[i] = x[v[0] + i * v[2]];
    return op_set_elements(node, 0, count, out, diag);
}

/* Elements of starts, ends, axes and steps; absent ones have their defaults, unknown ones are NULL.
 * Returns the number of axes, -1 when not known. */
static int64_t read_parts(const ir_node *node, const ir_dim *part[4][GQAC_MAX_RANK]) {
    static const int inputs[4] = {1, 2, 4, 3}; /* starts, ends, steps, axes */
    int64_t n = -1, length;
    for (int k = 0; k < 2 && n < 0; k++)
        if (ir_dim_is_const(op_in_dim(node, inputs[k], 0), &length) && length <= GQAC_MAX_RANK)
            n = length;
    for (int k = 0; k < 4; k++) {
        bool given = ir_node_input(node, inputs[k]) != NULL;
        bool known = given && op_elements(node, inputs[k], GQAC_MAX_RANK, part[k]) == n;
        for (int64_t i = 0; i < n && !known; i++)
            part[k][i] = given ? NULL : ir_dim_const(op_dims(node), k == 3 ? i : 1);
    }
    return n;
}

/* Checks constants: ends, axes and steps have as many elements as starts. */
static gqac_status check_counts(const ir_node *node, int64_t n, gqac_diag *diag) {
    int64_t length;
    for (int i = 2; i < 5 && n >= 0; i++)
        if (ir_dim_is_const(op_in_dim(node, i, 0), &length) && length != n)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "input %d has %lld elements, not %lld", i,
                    (long long)length, (long long)n);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *part[4][GQAC_MAX_RANK], *dims[GQAC_MAX_RANK];
    for (int i = 1; i < 5; i++)
        GQAC_TRY(op_check_list(node, i, GQAC_MAX_RANK, diag));
    int64_t n = read_parts(node, part), at, by;
    unsigned seen = 0;
    GQAC_TRY(check_counts(node, n, diag));
    for (int i = 0; i < type.rank; i++)
        dims[i] = n < 0 ? NULL : type.dims[i];
    for (int64_t i = 0; i < n && type.rank >= 0; i++) {
        int axis;
        if (ir_dim_is_const(part[2][i], &by) && by == 0)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the step is 0");
        if (!ir_dim_is_const(part[3][i], &at)) {
            for (int k = 0; k < type.rank; k++)
                dims[k] = NULL;
            break;
        }
        GQAC_TRY(op_axis(node, at, type.rank, &axis, diag));
        if (seen >> axis & 1)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "axis %d is given twice", axis);
        seen |= 1u << axis;
        dims[axis] = sliced(op_dims(node), type.dims[axis], part[0][i], part[1][i], part[2][i]);
    }
    GQAC_TRY(op_set_type(node, 0, type.dtype, type.rank, dims, diag));
    if (n != 1)
        return GQAC_OK;
    return infer_elements(node, (const ir_dim *[]){part[0][0], part[1][0], part[2][0]}, diag);
}

/* ---- eval ---------------------------------------------------------------- */

static gqac_status read_ints(op_call *call, int input, int64_t count, int64_t *values) {
    int64_t n;
    if (!ir_node_input(call->node, input))
        return GQAC_OK;
    GQAC_TRY(op_ints(call, input, GQAC_MAX_RANK, values, &n));
    if (n != count)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "input %d has %lld elements, not %lld",
                input, (long long)n, (long long)count);
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    const ir_node *node = call->node;
    int64_t starts[GQAC_MAX_RANK], ends[GQAC_MAX_RANK], axes[GQAC_MAX_RANK], steps[GQAC_MAX_RANK];
    int64_t strides[GQAC_MAX_RANK], n;
    unsigned seen = 0;
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    GQAC_TRY(op_ints(call, 1, GQAC_MAX_RANK, starts, &n));
    GQAC_TRY(op_want_set(call, 2, OP_INDICES));
    for (int64_t i = 0; i < n; i++) {
        axes[i] = i;
        steps[i] = 1;
    }
    GQAC_TRY(read_ints(call, 2, n, ends));
    GQAC_TRY(read_ints(call, 3, n, axes));
    GQAC_TRY(read_ints(call, 4, n, steps));
    const gqac_tensor *in = call->in[0];
    op_box box = {.rank = in->rank, .in = in, .out = &call->out[0]};
    op_strides(in->rank, in->dims, strides);
    for (int i = 0; i < in->rank; i++) {
        box.dims[i] = in->dims[i];
        box.stride_in[i] = strides[i];
    }
    for (int64_t i = 0; i < n; i++) {
        int axis;
        GQAC_TRY(op_axis(node, axes[i], in->rank, &axis, call->diag));
        if ((seen >> axis & 1) ||
            !resolve(in->dims[axis], &starts[i], ends[i], &steps[i], &box.dims[axis]))
            OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "axis %d is given twice, or a step of 0",
                    axis);
        seen |= 1u << axis;
        if (box.dims[axis] > 0)
            box.first_in += starts[i] * strides[axis];
        /* a step beyond the axis is never used, and its product might overflow */
        box.stride_in[axis] = box.dims[axis] > 1 ? steps[i] * strides[axis] : 0;
    }
    GQAC_TRY(op_copy_output(call, 0, in->dtype, in->rank, box.dims));
    op_strides(in->rank, box.dims, box.stride_out);
    if (gqac_tensor_count(box.out) > 0)
        GQAC_TRY(op_move(call, &box));
    return GQAC_OK;
}

static gqac_status upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    if (opset >= 10)
        return GQAC_OK;
    GQAC_TRY(op_ints_to_input(b, node, raw, "starts", 1));
    GQAC_TRY(op_ints_to_input(b, node, raw, "ends", 2));
    return op_ints_to_input(b, node, raw, "axes", 3);
}

/* Rows selected by their index in the call are other rows in another split. */
static bool mixes(const ir_node *node) {
    int64_t axes[GQAC_MAX_RANK], n = 0;
    const ir_value *data = ir_node_input(node, 0), *named = ir_node_input(node, 3);
    if (named && ir_const_ints(named, GQAC_MAX_RANK, axes, &n)) {
        for (int64_t i = 0; i < n; i++)
            if (op_axis_is_row(data, (int)axes[i]))
                return true;
        return false;
    }
    return op_any_row(data);
}

const gqac_op gqac_op_slice = {
    .schema = {.name = "Slice",
               .domain = "",
               .since = 13,
               .inputs = "data starts ends axes? steps?",
               .outputs = "output",
               .flags = IR_OP_MOVES,
               .rows = IR_ROWS_SHAPE,
               .doc = "start, start + step, ... below end along some axes"},
    .infer = infer,
    .eval = eval,
    .mixes = mixes,
    .upgrade = upgrade,
};
