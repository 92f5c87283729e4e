/* Pad: the data with pads[i] elements before and pads[n+i] after it along axis i (negative:
 * elements are cut off). Modes: constant (the value, 0 without), edge, reflect (about the outer
 * elements), wrap. As in ONNX Runtime, the last three continue what is left after the cut.
 * Source: ONNX operator spec. Before opset 11 pads and value were attributes. */
#include "ops/shared.h"

#include <string.h>

#include "base/alloc.h"

enum { DATA, PADS, VALUE, AXES };
enum { MAX_PADS = 2 * GQAC_MAX_RANK };

static const ir_attr_spec attrs[] = {
    OP_ATTR_STRING("mode", "constant", "constant, reflect, edge or wrap"),
    {.name = NULL},
};

static bool is_mode(const ir_node *node, const char *mode) {
    return strcmp(ir_attr_get(node, "mode")->s, mode) == 0;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    if (!is_mode(node, "constant") && !is_mode(node, "reflect") && !is_mode(node, "edge") &&
        !is_mode(node, "wrap"))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute mode = '%s': must be constant, reflect, edge or wrap",
                ir_attr_get(node, "mode")->s);
    return GQAC_OK;
}

/* The axis that pads[i] and pads[n+i] belong to. */
static gqac_status axis_order(const ir_node *node, int rank, int64_t count, const int64_t *axes,
                              int *order, gqac_diag *diag) {
    unsigned seen = 0;
    for (int64_t i = 0; i < count; i++) {
        GQAC_TRY(op_axis(node, axes ? axes[i] : i, rank, &order[i], diag));
        if (seen >> order[i] & 1)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "axis %d is given twice", order[i]);
        seen |= 1u << order[i];
    }
    return GQAC_OK;
}

/* ---- infer --------------------------------------------------------------- */

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type x = op_in_type(node, DATA);
    const ir_dim *pads[MAX_PADS], *named[GQAC_MAX_RANK], *dims[GQAC_MAX_RANK] = {NULL};
    int64_t axes[GQAC_MAX_RANK], length;
    int order[GQAC_MAX_RANK];
    bool given = ir_node_input(node, AXES) != NULL;
    GQAC_TRY(op_check_same(node, VALUE, DATA, diag));
    GQAC_TRY(op_check_dtype(node, DATA, OP_ANY & ~OP_NIBBLES, diag));
    GQAC_TRY(op_check_list(node, PADS, MAX_PADS, diag));
    GQAC_TRY(op_check_list(node, AXES, GQAC_MAX_RANK, diag));
    GQAC_TRY(op_check_single(node, VALUE, diag));
    if (x.rank < 0)
        return op_set_type(node, 0, x.dtype, -1, NULL, diag);
    int64_t n = op_elements(node, PADS, MAX_PADS, pads);
    int64_t count = given ? op_elements(node, AXES, GQAC_MAX_RANK, named) : x.rank;
    for (int64_t i = 0; given && i < count; i++)
        if (!ir_dim_is_const(named[i], &axes[i]))
            count = -1;
    if (n < 0 || count < 0)
        return op_set_type(node, 0, x.dtype, x.rank, dims, diag);
    if (n != 2 * count)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld pads for %lld axes", (long long)n,
                (long long)count);
    GQAC_TRY(axis_order(node, x.rank, count, given ? axes : NULL, order, diag));
    for (int i = 0; i < x.rank; i++)
        dims[i] = x.dims[i];
    for (int64_t i = 0; i < count; i++) {
        dims[order[i]] = ir_dim_add(op_dims(node), dims[order[i]],
                                    ir_dim_add(op_dims(node), pads[i], pads[count + i]));
        if (ir_dim_is_const(dims[order[i]], &length) && length < 0)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "axis %d would have length %lld", order[i],
                    (long long)length);
    }
    return op_set_type(node, 0, x.dtype, x.rank, dims, diag);
}

/* ---- eval ---------------------------------------------------------------- */

/* The elements of the data that an axis keeps. */
typedef struct kept {
    int64_t first, count;
} kept;

/* The position in the data for position i of it, which may be outside, along an axis; -1: the
 * value. */
static int64_t source(const ir_node *node, int64_t i, kept k) {
    const int64_t n = k.count, period = n > 1 ? 2 * (n - 1) : 1;
    i -= k.first;
    if (i >= 0 && i < n)
        return k.first + i;
    if (is_mode(node, "constant"))
        return -1;
    if (is_mode(node, "edge"))
        return k.first + (i < 0 ? 0 : n - 1);
    if (is_mode(node, "wrap"))
        return k.first + (i % n + n) % n;
    i = (i % period + period) % period;
    return k.first + (i < n ? i : period - i);
}

static gqac_status read_pads(op_call *call, int64_t *before, kept *keep, int64_t *dims) {
    const gqac_tensor *x = call->in[DATA];
    int64_t pads[MAX_PADS], axes[GQAC_MAX_RANK], n, count = x->rank;
    int order[GQAC_MAX_RANK];
    bool given = call->node->n_inputs > AXES && call->in[AXES];
    GQAC_TRY(op_ints(call, PADS, MAX_PADS, pads, &n));
    if (given)
        GQAC_TRY(op_ints(call, AXES, GQAC_MAX_RANK, axes, &count));
    if (n != 2 * count)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "%lld pads for %lld axes", (long long)n,
                (long long)count);
    GQAC_TRY(axis_order(call->node, x->rank, count, given ? axes : NULL, order, call->diag));
    for (int i = 0; i < x->rank; i++) {
        before[i] = 0;
        dims[i] = x->dims[i];
        keep[i] = (kept){.first = 0, .count = x->dims[i]};
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t most = INT64_MAX / 4, first = pads[i], last = pads[count + i];
        int64_t *dim = &dims[order[i]];
        kept *k = &keep[order[i]];
        if (first > most || first < -most || last > most || last < -most)
            OP_FAIL(call->node, call->diag, GQAC_LIMIT,
                    "pads of %lld and %lld elements are out of range", (long long)first,
                    (long long)last);
        before[order[i]] = first;
        *dim += first + last;
        k->first = first < 0 ? -first : 0;
        k->count -= k->first - (last < 0 ? last : 0);
        if (*dim < 0 || (*dim > 0 && k->count <= 0 && !is_mode(call->node, "constant")))
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "axis %d of length %lld cannot be padded by %lld and %lld", order[i],
                    (long long)x->dims[order[i]], (long long)first, (long long)last);
    }
    return GQAC_OK;
}

static gqac_status read_value(op_call *call, size_t width, unsigned char *value) {
    memset(value, 0, 8);
    if (call->node->n_inputs <= VALUE || !call->in[VALUE])
        return GQAC_OK;
    GQAC_TRY(op_want(call, VALUE, call->in[DATA]->dtype));
    if (gqac_tensor_count(call->in[VALUE]) != 1)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "the value must be a single element");
    memcpy(value, call->in[VALUE]->data, width);
    return GQAC_OK;
}

/* map[axis offset + i]: offset in the data of position i along that axis; -1: the value. */
static void fill(const op_call *call, const int64_t *map, const unsigned char *value,
                 size_t width) {
    const gqac_tensor *y = &call->out[0];
    const unsigned char *x = call->in[DATA]->data;
    unsigned char *out = y->data;
    for (int64_t i = 0, count = gqac_tensor_count(y); i < count; i++) {
        int64_t rest = i, at = 0;
        const int64_t *steps = map;
        for (int axis = y->rank - 1; axis >= 0 && at >= 0; axis--) {
            int64_t step = steps[rest % y->dims[axis]];
            at = step < 0 ? -1 : at + step;
            rest /= y->dims[axis];
            steps += y->dims[axis];
        }
        memcpy(out + (size_t)i * width, at < 0 ? value : x + (size_t)at * width, width);
    }
}

static gqac_status eval(op_call *call) {
    int64_t before[GQAC_MAX_RANK], dims[GQAC_MAX_RANK], strides[GQAC_MAX_RANK];
    kept keep[GQAC_MAX_RANK];
    unsigned char value[8];
    size_t length = 0;
    GQAC_TRY(op_want_set(call, DATA, OP_ANY & ~OP_NIBBLES));
    const gqac_tensor *x = call->in[DATA];
    size_t width = op_width(x->dtype);
    GQAC_TRY(read_pads(call, before, keep, dims));
    GQAC_TRY(read_value(call, width, value));
    GQAC_TRY(op_output(call, 0, x->dtype, x->rank, dims));
    if (gqac_tensor_count(&call->out[0]) == 0)
        return GQAC_OK;
    for (int axis = 0; axis < x->rank; axis++)
        length += (size_t)dims[axis]; /* at most the elements of the result, times the rank */
    op_scratch scratch;
    GQAC_TRY(op_scratch_open(call, length + 1, sizeof(int64_t), &scratch));
    int64_t *map = (int64_t *)(void *)scratch.base, *next = map;
    op_strides(x->rank, x->dims, strides);
    for (int axis = x->rank - 1; axis >= 0; axis--)
        for (int64_t i = 0; i < dims[axis]; i++) {
            int64_t from = source(call->node, i - before[axis], keep[axis]);
            *next++ = from < 0 ? -1 : from * strides[axis];
        }
    fill(call, map, value, width);
    op_scratch_close(&scratch);
    return GQAC_OK;
}

/* ---- upgrade ------------------------------------------------------------- */

static gqac_status upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    if (opset >= 11)
        return GQAC_OK;
    const ir_attr *value = op_raw_take(raw, "value");
    GQAC_TRY(op_ints_to_input(b, node, raw, "pads", PADS));
    if (value && value->set && value->f != 0)
        return op_put_input(b, node, VALUE, ir_build_f32(b, value->f));
    return GQAC_OK;
}

static bool mixes(const ir_node *node) {
    return !is_mode(node, "constant");
}

const gqac_op gqac_op_pad = {
    .schema = {.name = "Pad",
               .domain = "",
               .since = 13,
               .inputs = "data pads constant_value? axes?",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "data with elements added or cut off at both ends of its axes"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
    .upgrade = upgrade,
    .mixes = mixes,
};
