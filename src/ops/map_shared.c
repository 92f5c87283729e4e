/* Runs a span kernel over an output whose inputs broadcast to it.
 *
 * Axes that are contiguous in every operand are merged; the last axis is cut into spans of at most
 * OP_SPAN elements, and each span is one work item. A kernel reads an operand in place if it is
 * stored in the kernel's form, else from a buffer with converted elements, or with one value
 * repeated if the axis is broadcast. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

#include <string.h>

#include "numerics/convert.h"

typedef struct map_plan {
    const op_map *map;
    int rank;                    /* >= 1 */
    int64_t dims[GQAC_MAX_RANK]; /* of the output, after merging */
    int64_t strides[OP_MAP_INPUTS][GQAC_MAX_RANK];
    int64_t spans; /* in the last axis */
} map_plan;

op_carrier op_carrier_of(gqac_dtype dtype) {
    if (OP_IN(OP_FLOATS, dtype))
        return OP_AS_F32;
    if (dtype == GQAC_F64)
        return OP_AS_F64;
    return dtype == GQAC_BOOL ? OP_AS_BOOL : OP_AS_I64;
}

static size_t carrier_width(op_carrier carrier, gqac_dtype dtype) {
    static const size_t widths[] = {
        [OP_AS_F32] = 4, [OP_AS_F64] = 8, [OP_AS_I64] = 8, [OP_AS_BOOL] = 1};
    return carrier == OP_AS_RAW ? op_width(dtype) : widths[carrier];
}

/* True if elements are stored in the form that the kernel reads and writes. */
static bool in_place(op_carrier carrier, gqac_dtype dtype) {
    switch (carrier) {
    case OP_AS_RAW:
        return true;
    case OP_AS_F32:
        return dtype == GQAC_F32;
    case OP_AS_F64:
        return dtype == GQAC_F64;
    case OP_AS_I64:
        return dtype == GQAC_I64 || dtype == GQAC_U64;
    default:
        return dtype == GQAC_BOOL;
    }
}

/* ---- planning ------------------------------------------------------------ */

static void operand_strides(const gqac_tensor *in, const gqac_tensor *out, int64_t *strides) {
    int64_t own[GQAC_MAX_RANK];
    op_strides(in->rank, in->dims, own);
    for (int i = 0; i < out->rank; i++) {
        int k = i - (out->rank - in->rank);
        strides[i] = k >= 0 && in->dims[k] != 1 ? own[k] : 0;
    }
}

/* True if axis `outer` can be merged with the axis `inner` after it. */
static bool mergeable(const map_plan *plan, int outer, int inner) {
    for (int k = 0; k < plan->map->n_in; k++) {
        const int64_t *strides = plan->strides[k];
        if (strides[outer] != strides[inner] * plan->dims[inner])
            return false;
    }
    return true;
}

static void make_plan(map_plan *plan, const op_map *map) {
    const gqac_tensor *out = map->out;
    plan->map = map;
    for (int k = 0; k < map->n_in; k++)
        operand_strides(map->in[k], out, plan->strides[k]);
    memcpy(plan->dims, out->dims, sizeof plan->dims);
    int top = -1; /* the last axis kept so far */
    for (int i = 0; i < out->rank; i++) {
        if (plan->dims[i] == 1)
            continue;
        bool merge = top >= 0 && mergeable(plan, top, i);
        int64_t length = merge ? plan->dims[top] * plan->dims[i] : plan->dims[i];
        top += merge ? 0 : 1;
        plan->dims[top] = length;
        for (int k = 0; k < map->n_in; k++)
            plan->strides[k][top] = plan->strides[k][i];
    }
    plan->rank = top + 1;
    if (plan->rank == 0) { /* a single element */
        plan->rank = 1;
        plan->dims[0] = 1;
        for (int k = 0; k < map->n_in; k++)
            plan->strides[k][0] = 0;
    }
    plan->spans = (plan->dims[plan->rank - 1] + OP_SPAN - 1) / OP_SPAN;
}

/* ---- operands ------------------------------------------------------------ */

static void load(const gqac_tensor *in, op_carrier carrier, int64_t at, int64_t n, void *buffer) {
    if (carrier == OP_AS_F32) {
        op_get_f32s(in, at, n, buffer);
        return;
    }
    int64_t *ints = buffer; /* integers only: every other carrier is in place */
    const int32_t *words = in->data;
    for (int64_t i = 0; i < n && in->dtype == GQAC_I32; i++) /* the sums of quantised products */
        ints[i] = words[at + i];
    for (int64_t i = 0; i < n && in->dtype != GQAC_I32; i++)
        ints[i] = op_get_i64(in, at + i);
}

static void store(gqac_tensor *out, op_carrier carrier, int64_t at, int64_t n, const void *buffer) {
    if (carrier == OP_AS_F32) {
        op_put_f32s(out, at, n, buffer);
        return;
    }
    const int64_t *ints = buffer;
    for (int64_t i = 0; i < n; i++)
        op_put_i64(out, at + i, ints[i]);
}

/* Repeats the first element of the buffer n times. */
static void repeat(void *buffer, size_t width, size_t n) {
    unsigned char *bytes = buffer;
    size_t done = 1;
    while (done < n) {
        size_t more = done < n - done ? done : n - done;
        memcpy(bytes + done * width, bytes, more * width);
        done += more;
    }
}

typedef union span_buffer {
    double align;
    unsigned char bytes[OP_SPAN * 8];
} span_buffer;

typedef struct operand_state {
    span_buffer buffer;
    int64_t repeated; /* element the buffer repeats; -1: none */
    size_t filled;    /* number of repetitions */
} operand_state;

static const void *operand(const map_plan *plan, int k, int64_t at, int64_t n,
                           operand_state *state) {
    const gqac_tensor *in = plan->map->in[k];
    op_carrier carrier = plan->map->in_as[k];
    size_t width = carrier_width(carrier, in->dtype);
    bool direct = in_place(carrier, in->dtype);
    bool single = plan->strides[k][plan->rank - 1] == 0;
    const unsigned char *data = in->data;
    if (direct && (!single || n == 1))
        return data + (size_t)at * width;
    if (single && state->repeated == at && state->filled >= (size_t)n)
        return state->buffer.bytes;
    if (direct)
        memcpy(state->buffer.bytes, data + (size_t)at * width, width);
    else
        load(in, carrier, at, single ? 1 : n, state->buffer.bytes);
    if (single)
        repeat(state->buffer.bytes, width, (size_t)n);
    state->repeated = single ? at : -1;
    state->filled = (size_t)n;
    return state->buffer.bytes;
}

/* ---- running ------------------------------------------------------------- */

/* Splits a flat index of the output's rows into a position in each operand. */
static void locate(const map_plan *plan, int64_t row, int64_t *index, int64_t *at) {
    for (int k = 0; k < plan->map->n_in; k++)
        at[k] = 0;
    for (int i = plan->rank - 2; i >= 0; i--) {
        index[i] = row % plan->dims[i];
        row /= plan->dims[i];
        for (int k = 0; k < plan->map->n_in; k++)
            at[k] += index[i] * plan->strides[k][i];
    }
}

static void next_row(const map_plan *plan, int64_t *index, int64_t *at) {
    for (int i = plan->rank - 2; i >= 0; i--) {
        for (int k = 0; k < plan->map->n_in; k++)
            at[k] += plan->strides[k][i];
        if (++index[i] < plan->dims[i])
            return;
        index[i] = 0;
        for (int k = 0; k < plan->map->n_in; k++)
            at[k] -= plan->dims[i] * plan->strides[k][i];
    }
}

static void run_items(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const map_plan *plan = arg;
    const op_map *map = plan->map;
    int64_t index[GQAC_MAX_RANK], at[OP_MAP_INPUTS];
    int64_t row = (int64_t)begin / plan->spans, span = (int64_t)begin % plan->spans;
    int64_t length = plan->dims[plan->rank - 1];
    operand_state states[OP_MAP_INPUTS];
    span_buffer result;
    bool direct = in_place(map->out_as, map->out->dtype);
    size_t width = carrier_width(map->out_as, map->out->dtype);
    for (int k = 0; k < map->n_in; k++)
        states[k].repeated = -1;
    locate(plan, row, index, at);
    for (size_t item = begin; item < end; item++) {
        int64_t first = span * OP_SPAN;
        int64_t n = length - first < OP_SPAN ? length - first : OP_SPAN;
        int64_t to = row * length + first;
        const void *x[OP_MAP_INPUTS];
        for (int k = 0; k < map->n_in; k++)
            x[k] =
                operand(plan, k, at[k] + first * plan->strides[k][plan->rank - 1], n, &states[k]);
        unsigned char *out = map->out->data;
        void *y = direct ? out + (size_t)to * width : result.bytes;
        map->run(y, x, (size_t)n, map->arg);
        if (!direct)
            store(map->out, map->out_as, to, n, result.bytes);
        if (++span == plan->spans) {
            span = 0;
            row++;
            next_row(plan, index, at);
        }
    }
}

void op_map_run(op_call *call, const op_map *map) {
    map_plan plan;
    if (gqac_tensor_count(map->out) == 0)
        return;
    make_plan(&plan, map);
    int64_t length = plan.dims[plan.rank - 1];
    int64_t items = gqac_tensor_count(map->out) / length * plan.spans;
    op_parallel(call, items, 20 + (length < OP_SPAN ? length : OP_SPAN), run_items, &plan);
}
