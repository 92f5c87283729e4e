/* Attention of the gpu target: checks operands, finds the visible keys of each row, and launches
 * kernels/attention.cl. */
#include "targets/gpu/attention.h"

#include <string.h>

#include "ops/visible.h"

/* attend_shape of kernels/attention.cl. */
typedef struct attend_shape {
    int32_t heads, kv_heads, queries, keys, size, value_size, bias_columns, has_sink;
    float scale, softcap;
    int64_t bias_step[3];
} attend_shape;
_Static_assert(sizeof(attend_shape) == 64, "the kernel has no padding either");

typedef struct attending {
    const gpu_attention *record;
    const gqac_tensor *q, *k, *v, *bias, *sink;
    gqac_tensor y;
    attention_rows rows;
    attend_shape shape;
    int64_t n;     /* queries of all sequences */
    int32_t *list; /* [3][n]: first visible key, one after the last, sequence */
} attending;

/* ---- operands ------------------------------------------------------------------ */

/* A bias that broadcasts to [B,Hq,S,columns]. */
static gqac_status set_bias(const target_call *call, attending *t) {
    const gqac_tensor *bias = t->bias;
    if (!bias)
        return GQAC_OK;
    GQAC_TRY(op_floats(&call->work, bias, "bias", 4));
    const int64_t scores[4] = {t->q->dims[0], t->q->dims[1], t->q->dims[2], t->k->dims[2]};
    int64_t step = bias->dims[3];
    bool fit = step >= 1 && step <= INT32_MAX;
    for (int axis = 2; axis >= 0; axis--) {
        fit = fit && (bias->dims[axis] == 1 || bias->dims[axis] == scores[axis]);
        t->shape.bias_step[axis] = bias->dims[axis] == 1 ? 0 : step;
        step *= bias->dims[axis];
    }
    t->shape.bias_columns = (int32_t)bias->dims[3];
    return fit ? GQAC_OK : op_misfit(&call->work, "bias", bias, scores);
}

static gqac_status set_sink(const target_call *call, attending *t) {
    if (!t->sink)
        return GQAC_OK;
    GQAC_TRY(op_floats(&call->work, t->sink, "sink", 1));
    if (t->sink->dims[0] != t->q->dims[1])
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "%lld sinks for %lld heads",
                (long long)t->sink->dims[0], (long long)t->q->dims[1]);
    t->shape.has_sink = 1;
    return GQAC_OK;
}

static gqac_status open_operands(target_call *call, attending *t) {
    const gpu_attention *r = t->record;
    t->q = target_value(call, r->q);
    t->k = target_value(call, r->k);
    t->v = target_value(call, r->v);
    t->bias = target_value(call, r->bias);
    t->sink = target_value(call, r->sink);
    GQAC_TRY(op_floats(&call->work, t->q, "q", 4));
    GQAC_TRY(op_floats(&call->work, t->k, "k", 4));
    GQAC_TRY(op_floats(&call->work, t->v, "v", 4));
    t->n = t->q->dims[0] * t->q->dims[2];
    GQAC_TRY(op_rows_fit(&call->work, target_value(call, r->past_len),
                         target_value(call, r->new_len), t->q->dims[0], t->q->dims[2], &t->rows));
    GQAC_TRY(op_heads_fit(&call->work, t->rows.n, t->q, t->k, t->v, GPU_ATTEND_SIZE));
    if (t->q->dims[1] > INT32_MAX || t->k->dims[2] > INT32_MAX || t->n > INT32_MAX)
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "%lld heads of %lld queries, %lld keys",
                (long long)t->q->dims[1], (long long)t->n, (long long)t->k->dims[2]);
    t->shape = (attend_shape){.heads = (int32_t)t->q->dims[1],
                              .kv_heads = (int32_t)t->k->dims[1],
                              .queries = (int32_t)t->q->dims[2],
                              .keys = (int32_t)t->k->dims[2],
                              .size = (int32_t)t->q->dims[3],
                              .value_size = (int32_t)t->v->dims[3],
                              .scale = r->scale,
                              .softcap = r->softcap};
    GQAC_TRY(set_bias(call, t));
    GQAC_TRY(set_sink(call, t));
    t->y = (gqac_tensor){.dtype = t->v->dtype,
                         .rank = 3,
                         .dims = {t->q->dims[0], t->q->dims[2], t->q->dims[1] * t->v->dims[3]}};
    return target_give(call, r->y, &t->y);
}

/* ---- rows ---------------------------------------------------------------------- */

/* Sets the visible range and the sequence of each row. */
static gqac_status list_rows(const target_call *call, attending *t) {
    int32_t *lo = t->list, *hi = lo + t->n, *sequence = hi + t->n;
    op_visible(&t->rows, t->record->causal, t->record->window, lo, hi);
    for (int64_t b = 0, i = 0; b < t->rows.n; b++)
        for (int64_t s = 0; s < attention_rows_of(&t->rows, b); s++, i++) {
            const bool some = lo[i] < hi[i];
            sequence[i] = (int32_t)b;
            if (some && (lo[i] < 0 || hi[i] > t->shape.keys))
                OP_STOP(&call->work, GQAC_OUT_OF_RANGE,
                        "visible keys [%d,%d) of row %lld do not lie in the %d keys", lo[i], hi[i],
                        (long long)i, t->shape.keys);
            if (some && t->bias && hi[i] > t->shape.bias_columns)
                OP_STOP(&call->work, GQAC_INVALID_INPUT,
                        "the bias has %d columns, but keys up to %d are visible in sequence %lld",
                        t->shape.bias_columns, hi[i], (long long)b);
        }
    return GQAC_OK;
}

/* ---- the kernel ---------------------------------------------------------------- */

/* An absent operand becomes one byte that is not read. */
static gqac_status put_optional(gpu_work *w, const gqac_tensor *tensor, gpu_buffer *buffer) {
    return tensor ? gpu_in(w, tensor, buffer) : gpu_scratch(w, 1, buffer);
}

static gqac_status attend(gpu_work *w, attending *t) {
    enum { LO, HI, SEQUENCE, LISTS };
    const size_t bytes = (size_t)t->n * sizeof *t->list;
    gpu_buffer q, k, v, bias, sink, y, lists[LISTS];
    GQAC_TRY(gpu_in(w, t->q, &q));
    GQAC_TRY(gpu_in(w, t->k, &k));
    GQAC_TRY(gpu_in(w, t->v, &v));
    for (int i = 0; i < LISTS; i++)
        GQAC_TRY(gpu_put(w, t->list + i * t->n, bytes, &lists[i]));
    GQAC_TRY(put_optional(w, t->bias, &bias));
    GQAC_TRY(put_optional(w, t->sink, &sink));
    GQAC_TRY(gpu_out(w, &t->y, &y));
    const gpu_grid grid = {.groups = {(size_t)t->shape.heads, (size_t)t->n},
                           .items = {GPU_ATTEND_ITEMS, 1}};
    const gpu_arg args[] = {GPU_ARG(q.handle),         GPU_ARG(k.handle),
                            GPU_ARG(v.handle),         GPU_ARG(lists[LO].handle),
                            GPU_ARG(lists[HI].handle), GPU_ARG(lists[SEQUENCE].handle),
                            GPU_ARG(bias.handle),      GPU_ARG(sink.handle),
                            GPU_ARG(y.handle),         GPU_ARG(t->shape)};
    GQAC_TRY(gpu_launch(w, GPU_ATTEND, &grid, GPU_COUNT(args), args));
    return gpu_done(w, &y, &t->y);
}

gqac_status gpu_attention_run(target_call *call, const void *record) {
    attending t = {.record = record};
    op_scratch scratch;
    GQAC_TRY(open_operands(call, &t));
    if (gqac_tensor_count(&t.y) == 0)
        return GQAC_OK;
    GQAC_TRY(op_work_scratch_one(&call->work, 3 * (size_t)t.n, sizeof *t.list, &scratch));
    t.list = (int32_t *)(void *)scratch.base;
    gqac_status status = list_rows(call, &t);
    if (status == GQAC_OK) {
        gpu_work w = gpu_take(call);
        status = attend(&w, &t);
        gpu_give_back(&w);
    }
    op_scratch_close(&scratch);
    return status;
}
