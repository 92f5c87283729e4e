/* Element access, shapes and work splitting for eval.
 *
 * No shape or value of the model is trusted: integers wrap, conversions of floats are defined for
 * every bit pattern, and callers check values before they use them as indices. */
#include "ops/shared.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "numerics/convert.h"
#include "ops/kernel.h"

/* ---- elements ------------------------------------------------------------ */

size_t op_width(gqac_dtype dtype) {
    return (size_t)gqac_dtype_bits(dtype) / 8;
}

static unsigned nibble(const gqac_tensor *tensor, int64_t index) {
    const uint8_t *bytes = tensor->data;
    return (unsigned)(bytes[index / 2] >> (index % 2 * 4)) & 15u;
}

int64_t op_f64_to_i64(double value) {
    if (value >= 0x1p63)
        return INT64_MAX;
    if (value < -0x1p63)
        return INT64_MIN;
    return value == value ? (int64_t)value : 0;
}

float op_get_f32(const gqac_tensor *tensor, int64_t index) {
    switch (tensor->dtype) {
    case GQAC_F32:
        return ((const float *)tensor->data)[index];
    case GQAC_F16:
        return gqn_f16_to_f32(((const uint16_t *)tensor->data)[index]);
    case GQAC_BF16:
        return gqn_bf16_to_f32(((const uint16_t *)tensor->data)[index]);
    case GQAC_F64:
        return (float)((const double *)tensor->data)[index];
    default:
        return (float)op_get_i64(tensor, index);
    }
}

int64_t op_get_i64(const gqac_tensor *tensor, int64_t index) {
    const void *data = tensor->data;
    switch (tensor->dtype) {
    case GQAC_I64:
    case GQAC_U64:
        return ((const int64_t *)data)[index];
    case GQAC_I32:
        return ((const int32_t *)data)[index];
    case GQAC_U32:
        return ((const uint32_t *)data)[index];
    case GQAC_I16:
        return ((const int16_t *)data)[index];
    case GQAC_U16:
        return ((const uint16_t *)data)[index];
    case GQAC_I8:
        return ((const int8_t *)data)[index];
    case GQAC_U8:
        return ((const uint8_t *)data)[index];
    case GQAC_BOOL:
        return ((const uint8_t *)data)[index] != 0;
    case GQAC_U4:
        return nibble(tensor, index);
    case GQAC_I4:
        return (int)(nibble(tensor, index) ^ 8u) - 8;
    default:
        return op_f64_to_i64(op_get_f64(tensor, index));
    }
}

double op_get_f64(const gqac_tensor *tensor, int64_t index) {
    switch (tensor->dtype) {
    case GQAC_F64:
        return ((const double *)tensor->data)[index];
    case GQAC_U64:
        return (double)((const uint64_t *)tensor->data)[index];
    case GQAC_F32:
    case GQAC_F16:
    case GQAC_BF16:
        return op_get_f32(tensor, index);
    default:
        return (double)op_get_i64(tensor, index);
    }
}

void op_put_f32(gqac_tensor *tensor, int64_t index, float value) {
    switch (tensor->dtype) {
    case GQAC_F16:
        ((uint16_t *)tensor->data)[index] = gqn_f32_to_f16(value);
        break;
    case GQAC_BF16:
        ((uint16_t *)tensor->data)[index] = gqn_f32_to_bf16(value);
        break;
    case GQAC_F64:
        ((double *)tensor->data)[index] = value;
        break;
    default:
        ((float *)tensor->data)[index] = value;
        break;
    }
}

void op_put_i64(gqac_tensor *tensor, int64_t index, int64_t value) {
    void *data = tensor->data;
    uint8_t *byte;
    switch (tensor->dtype) {
    case GQAC_I64:
    case GQAC_U64:
        ((int64_t *)data)[index] = value;
        break;
    case GQAC_I32:
    case GQAC_U32:
        ((uint32_t *)data)[index] = (uint32_t)value;
        break;
    case GQAC_I16:
    case GQAC_U16:
        ((uint16_t *)data)[index] = (uint16_t)value;
        break;
    case GQAC_I8:
    case GQAC_U8:
        ((uint8_t *)data)[index] = (uint8_t)value;
        break;
    case GQAC_BOOL:
        ((uint8_t *)data)[index] = value != 0;
        break;
    case GQAC_I4:
    case GQAC_U4:
        byte = (uint8_t *)data + index / 2;
        if (index % 2)
            *byte = (uint8_t)((*byte & 15) | ((uint64_t)value & 15) << 4);
        else
            *byte = (uint8_t)((*byte & 0xf0) | ((uint64_t)value & 15));
        break;
    default:
        op_put_f32(tensor, index, (float)value);
        break;
    }
}

OP_BODY void widen_body(const uint16_t *restrict half, int64_t n, float *restrict out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = gqn_f16_to_f32(half[i]);
}
OP_KERNEL(widen, (const uint16_t *half, int64_t n, float *out), (half, n, out))

OP_BODY void narrow_body(const float *restrict values, int64_t n, uint16_t *restrict half) {
    for (int64_t i = 0; i < n; i++)
        half[i] = gqn_f32_to_f16(values[i]);
}
OP_KERNEL(narrow, (const float *values, int64_t n, uint16_t *half), (values, n, half))

void op_get_f32s(const gqac_tensor *tensor, int64_t first, int64_t n, float *out) {
    const uint16_t *half = (const uint16_t *)tensor->data + first;
    switch (tensor->dtype) {
    case GQAC_F32:
        memcpy(out, (const float *)tensor->data + first, (size_t)n * sizeof *out);
        break;
    case GQAC_F16:
        widen(half, n, out);
        break;
    case GQAC_BF16:
        for (int64_t i = 0; i < n; i++)
            out[i] = gqn_bf16_to_f32(half[i]);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            out[i] = op_get_f32(tensor, first + i);
    }
}

void op_put_f32s(gqac_tensor *tensor, int64_t first, int64_t n, const float *values) {
    uint16_t *half = (uint16_t *)tensor->data + first;
    switch (tensor->dtype) {
    case GQAC_F32:
        memcpy((float *)tensor->data + first, values, (size_t)n * sizeof *values);
        break;
    case GQAC_F16:
        narrow(values, n, half);
        break;
    case GQAC_BF16:
        for (int64_t i = 0; i < n; i++)
            half[i] = gqn_f32_to_bf16(values[i]);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            op_put_f32(tensor, first + i, values[i]);
    }
}

void op_gather_f32(const gqac_tensor *tensor, int64_t first, int64_t n, int64_t stride,
                   float *out) {
    if (stride == 1) {
        op_get_f32s(tensor, first, n, out);
        return;
    }
    const float *data = tensor->data;
    for (int64_t i = 0; i < n && tensor->dtype == GQAC_F32; i++)
        out[i] = data[first + i * stride];
    for (int64_t i = 0; i < n && tensor->dtype != GQAC_F32; i++)
        out[i] = op_get_f32(tensor, first + i * stride);
}

void op_scatter_f32(gqac_tensor *tensor, int64_t first, int64_t n, int64_t stride,
                    const float *values) {
    if (stride == 1) {
        op_put_f32s(tensor, first, n, values);
        return;
    }
    float *data = tensor->data;
    for (int64_t i = 0; i < n && tensor->dtype == GQAC_F32; i++)
        data[first + i * stride] = values[i];
    for (int64_t i = 0; i < n && tensor->dtype != GQAC_F32; i++)
        op_put_f32(tensor, first + i * stride, values[i]);
}

/* ---- inputs and outputs -------------------------------------------------- */

gqac_status op_want_set(op_call *call, int input, unsigned set) {
    const gqac_tensor *tensor = input < call->node->n_inputs ? call->in[input] : NULL;
    char name[64];
    if (tensor && OP_IN(set, tensor->dtype))
        return GQAC_OK;
    ir_schema_name(call->node->op->inputs, input, name, sizeof name);
    if (!tensor)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "input '%s' is missing", name);
    OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
            "input '%s' has the type %s, which the op does not accept here", name,
            gqac_dtype_name(tensor->dtype));
}

gqac_status op_want(op_call *call, int input, gqac_dtype dtype) {
    return op_want_set(call, input, dtype == GQAC_NONE ? ~0u : 1u << dtype);
}

gqac_status op_ints(op_call *call, int input, int64_t max, int64_t *out, int64_t *count) {
    GQAC_TRY(op_want_set(call, input, OP_INDICES));
    const gqac_tensor *tensor = call->in[input];
    int64_t n = gqac_tensor_count(tensor);
    if (tensor->rank > 1 || n > max)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "input %d has rank %d and %lld elements, expected rank 0 or 1 and at most %lld "
                "elements",
                input, tensor->rank, (long long)n, (long long)max);
    for (int64_t i = 0; i < n; i++)
        out[i] = op_get_i64(tensor, i);
    *count = n;
    return GQAC_OK;
}

gqac_status op_index(op_call *call, int64_t at, int axis, int64_t *index) {
    const int64_t length = call->in[0]->dims[axis];
    *index = op_get_i64(call->in[1], at);
    if (*index < -length || *index >= length)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                "index %lld is out of range for axis %d of length %lld", (long long)*index, axis,
                (long long)length);
    *index += *index < 0 ? length : 0;
    return GQAC_OK;
}

gqac_status op_int(op_call *call, int input, int64_t *out) {
    GQAC_TRY(op_want_set(call, input, OP_INTS | OP_BIT(BOOL)));
    const gqac_tensor *tensor = call->in[input];
    if (gqac_tensor_count(tensor) != 1)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "input %d is not a single value",
                input);
    *out = op_get_i64(tensor, 0);
    return GQAC_OK;
}

gqac_status op_output_like(op_call *call, int index, gqac_dtype dtype, const gqac_tensor *shape) {
    return op_output(call, index, dtype, shape->rank, shape->dims);
}

gqac_status op_work_broadcast(const op_work *work, const gqac_tensor *a, const gqac_tensor *b,
                              int *rank, int64_t *dims) {
    int r = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 1; i <= r; i++) {
        int64_t x = i <= a->rank ? a->dims[a->rank - i] : 1;
        int64_t y = i <= b->rank ? b->dims[b->rank - i] : 1;
        if (x != y && x != 1 && y != 1)
            OP_STOP(work, GQAC_INVALID_INPUT,
                    "dimensions %lld and %lld at axis -%d cannot be broadcast", (long long)x,
                    (long long)y, i);
        dims[r - i] = x == 1 ? y : x;
    }
    *rank = r;
    return GQAC_OK;
}

gqac_status op_broadcast(op_call *call, const gqac_tensor *a, const gqac_tensor *b, int *rank,
                         int64_t *dims) {
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    return op_work_broadcast(&work, a, b, rank, dims);
}

int64_t op_strides(int rank, const int64_t *dims, int64_t *strides) {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims[i];
    }
    return step;
}

int64_t op_product(const int64_t *dims, int from, int to) {
    int64_t product = 1;
    for (int i = from; i < to; i++)
        product *= dims[i];
    return product;
}

/* ---- work ---------------------------------------------------------------- */

/* ns; shorter tasks are not handed to other threads. Steps of one to eight tokens were timed in
 * turns with 600 to 20000, on two threads: below 2500 nothing is gained. */
enum { TASK_NS = 2500 };

void op_work_parallel(const op_work *work, int64_t items, int64_t cost,
                      void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg) {
    int64_t ns;
    if (items <= 0)
        return;
    if (work->left) {
        if (*work->left < 0)
            return;
        if (!gqac_mul_i64(items, cost > 0 ? cost : 1, &ns) || ns > *work->left) {
            *work->left = ~*work->left;
            return;
        }
        *work->left -= ns;
    }
    int64_t grain = cost > 0 ? TASK_NS / cost : TASK_NS;
    gqac_pool_run(work->pool, (size_t)items, grain > 0 ? (size_t)grain : 1, run, arg);
}

/* All outputs are allocated and empty: there is nothing to compute, whatever the other
 * dimensions. */
static bool makes_nothing(const op_call *call) {
    const ir_node *node = call->node;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] &&
            (call->out[i].dtype == GQAC_NONE || gqac_tensor_count(&call->out[i]) > 0))
            return false;
    return !(node->op->flags & IR_OP_EFFECT);
}

void op_parallel(op_call *call, int64_t items, int64_t cost,
                 void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg) {
    const op_work work = op_work_of(call);
    if (!makes_nothing(call))
        op_work_parallel(&work, items, cost, run, arg);
}

enum { SCRATCH_LEAST = 64 };

static gqac_status open_scratch(const op_work *work, size_t bytes, op_scratch *scratch) {
    scratch->owned = NULL;
    bytes = bytes ? bytes : SCRATCH_LEAST;
    if (work->scratch)
        scratch->base = work->scratch(work->host, bytes);
    else
        scratch->base = scratch->owned = gqac_aligned_alloc(64, bytes);
    return scratch->base ? GQAC_OK : gqac_diag_oom(work->diag, "scratch");
}

/* Bytes of one worker, and of all. */
static bool scratch_bytes(size_t workers, size_t count, size_t size, size_t *each, size_t *all) {
    size_t bytes;
    if (!gqac_mul_size(count, size, &bytes) || !gqac_add_size(bytes, 63, &bytes))
        return false;
    *each = bytes & ~(size_t)63;
    return gqac_mul_size(*each, workers, all);
}

gqac_status op_work_scratch(const op_work *work, size_t count, size_t size, op_scratch *scratch) {
    size_t workers = work->pool ? (size_t)gqac_pool_threads(work->pool) : 1, bytes;
    if (!scratch_bytes(workers, count, size, &scratch->stride, &bytes))
        return gqac_diag_oom(work->diag, "scratch");
    return open_scratch(work, bytes, scratch);
}

gqac_status op_work_scratch_one(const op_work *work, size_t count, size_t size,
                                op_scratch *scratch) {
    size_t bytes;
    if (!gqac_mul_size(count, size, &bytes))
        return gqac_diag_oom(work->diag, "scratch");
    scratch->stride = 0;
    return open_scratch(work, bytes, scratch);
}

void op_scratch_measure(gqac_parts *parts, int threads, size_t count, size_t size) {
    size_t each, all;
    if (scratch_bytes((size_t)threads, count, size, &each, &all))
        op_scratch_measure_one(parts, all, 1);
    else
        parts->overflow = true;
}

void op_scratch_measure_one(gqac_parts *parts, size_t count, size_t size) {
    if (count && size)
        (void)gqac_parts_take(parts, count <= INT64_MAX ? (int64_t)count : -1, size);
    else
        (void)gqac_parts_take(parts, SCRATCH_LEAST, 1);
}

gqac_status op_scratch_open(op_call *call, size_t count, size_t size, op_scratch *scratch) {
    const op_work work = op_work_of(call);
    return op_work_scratch(&work, count, size, scratch);
}

gqac_status op_scratch_open_one(op_call *call, size_t count, size_t size, op_scratch *scratch) {
    const op_work work = op_work_of(call);
    return op_work_scratch_one(&work, count, size, scratch);
}

void op_scratch_close(op_scratch *scratch) {
    gqac_free(scratch->owned);
    scratch->base = scratch->owned = NULL;
}

gqac_status op_stop(const op_work *work, gqac_status status, const char *fmt, ...) {
    char text[sizeof work->diag->what];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    gqac_diag_set(work->diag, status, "%s", text);
    const op_origin *o = work->origin;
    if (o)
        gqac_diag_where(work->diag, "node '%s' (%s%s%s)", o->name, o->domain, *o->domain ? "." : "",
                        o->op);
    return status;
}
