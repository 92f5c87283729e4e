/* Attention of the gpu target: checks operands, finds the visible keys of each row, and launches
 * kernels/attention.cl. */
#include "targets/gpu/attention.h"

#include <string.h>

#include "numerics/contract.h"
#include "ops/visible.h"
#include "targets/gpu/append.h"

/* attend_shape of kernels/attention.cl. */
typedef struct attend_shape {
    int32_t heads, kv_heads, queries, keys, size, value_size, bias_columns, has_sink;
    int32_t rows, padding;
    float scale, softcap;
    int64_t bias_step[3];
} attend_shape;
/* attend_blocks of kernels/attention.cl. */
typedef struct attend_blocks {
    int64_t per, entry_bytes, k_at, v_at;
    int32_t entries[GPU_SLABS];
} attend_blocks;
_Static_assert(sizeof(attend_shape) == 72 && sizeof(attend_blocks) == 96,
               "the kernel has no padding either");
_Static_assert(GQAC_KV_BLOCK % GQAC_KEY_TILE == 0, "a tile lies in one block");

typedef struct attending {
    const gpu_attention *record;
    const gqac_tensor *q, *k, *v, *bias, *sink;
    gqac_tensor y;
    attention_rows rows;
    attend_shape shape;
    int64_t n;       /* queries of all sequences */
    int32_t *lists;  /* [3][n]: first visible key, one after the last, sequence; then the table */
    size_t bytes;    /* of the lists */
    gpu_table table; /* of keys and values in blocks */
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
    t->bias = target_value(call, r->bias.value);
    t->sink = target_value(call, r->sink.value);
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
                              .rows = (int32_t)t->n,
                              .scale = r->scale,
                              .softcap = r->softcap};
    GQAC_TRY(set_bias(call, t));
    GQAC_TRY(set_sink(call, t));
    t->y = (gqac_tensor){.dtype = t->v->dtype,
                         .rank = 3,
                         .dims = {t->q->dims[0], t->q->dims[2], t->q->dims[1] * t->v->dims[3]}};
    return target_give(call, r->y, &t->y);
}

/* Sizes the table of blocks. */
static gqac_status open_blocks(const target_call *call, attending *t) {
    const kv_batch *kv = call->kv;
    if (!t->record->in_blocks)
        return GQAC_OK;
    if (!kv || kv->n != t->rows.n)
        OP_STOP(&call->work, GQAC_INTERNAL, "attention in blocks outside a step");
    t->table.per = (t->shape.keys + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK;
    return GQAC_OK;
}

/* ---- rows ---------------------------------------------------------------------- */

/* Sets the visible range and the sequence of each row. */
static gqac_status list_rows(const target_call *call, attending *t) {
    int32_t *lo = t->lists, *hi = lo + t->n, *sequence = hi + t->n;
    op_visible(&t->rows, t->record->causal, t->record->window, lo, hi);
    for (int64_t b = 0, i = 0; b < t->rows.n; b++) {
        const int64_t keys =
            t->record->in_blocks ? call->kv->past[b] + call->kv->count[b] : t->shape.keys;
        for (int64_t s = 0; s < attention_rows_of(&t->rows, b); s++, i++) {
            const bool some = lo[i] < hi[i];
            sequence[i] = (int32_t)b;
            if (some && (lo[i] < 0 || hi[i] > keys))
                OP_STOP(&call->work, GQAC_OUT_OF_RANGE,
                        "visible keys [%d,%d) of row %lld do not lie in the %lld keys", lo[i],
                        hi[i], (long long)i, (long long)keys);
            if (some && t->bias && hi[i] > t->shape.bias_columns)
                OP_STOP(&call->work, GQAC_INVALID_INPUT,
                        "the bias has %d columns, but keys up to %d are visible in sequence %lld",
                        t->shape.bias_columns, hi[i], (long long)b);
        }
    }
    return GQAC_OK;
}

/* ---- the kernel ---------------------------------------------------------------- */

/* What both kernels read and write besides keys and values. The lists are not yet written. */
typedef struct operands {
    gpu_buffer q, lists, bias, sink, y;
} operands;

static gpu_list lists_of(const attending *t) {
    return t->record->window > 0 ? GPU_LIST_WINDOW : GPU_LIST_ATTEND;
}

static gqac_status take_operands(gpu_work *w, const target_call *call, const attending *t,
                                 operands *o) {
    GQAC_TRY(gpu_in(w, t->q, &o->q));
    GQAC_TRY(gpu_list_take(w, lists_of(t), t->bytes, &o->lists));
    GQAC_TRY(gpu_operand_in(w, call, &t->record->bias, &o->bias));
    GQAC_TRY(gpu_operand_in(w, call, &t->record->sink, &o->sink));
    return gpu_out(w, &t->y, &o->y);
}

static gpu_grid grid_of(const attending *t) {
    return (gpu_grid){.groups = {(size_t)t->shape.heads, (size_t)t->n},
                      .items = {GPU_ATTEND_ITEMS, 1}};
}

static gqac_status attend_rows(gpu_work *w, const target_call *call, attending *t) {
    const gpu_grid grid = grid_of(t);
    operands o;
    gpu_buffer k, v;
    GQAC_TRY(take_operands(w, call, t, &o));
    GQAC_TRY(gpu_list_write(w, lists_of(t), t->lists, t->bytes));
    GQAC_TRY(gpu_in(w, t->k, &k));
    GQAC_TRY(gpu_in(w, t->v, &v));
    const gpu_arg args[] = {GPU_ARG(o.q.handle),     GPU_ARG(k.handle),      GPU_ARG(v.handle),
                            GPU_ARG(o.lists.handle), GPU_ARG(o.bias.handle), GPU_ARG(o.sink.handle),
                            GPU_ARG(o.y.handle),     GPU_ARG(t->shape)};
    GQAC_TRY(gpu_launch(w, GPU_ATTEND, &grid, GPU_COUNT(args), args));
    return gpu_done(w, &o.y, &t->y);
}

/* Places the blocks of the step, and uploads the rows that the device lacks. */
static gqac_status bring_blocks(gpu_work *w, const kv_batch *kv, const attending *t,
                                attend_blocks *shape, gpu_slabs *slabs) {
    gpu_blocks *blocks = gpu_state_blocks(w->state);
    const gpu_attention *r = t->record;
    GQAC_TRY(gpu_blocks_place(blocks, kv, &t->table, w->work->diag));
    GQAC_TRY(gpu_bring_rows(w, kv, r->k_slot, &t->table));
    GQAC_TRY(gpu_bring_rows(w, kv, r->v_slot, &t->table));
    *slabs = gpu_blocks_slabs(blocks);
    *shape = (attend_blocks){.per = t->table.per,
                             .entry_bytes = (int64_t)gpu_blocks_entry_bytes(blocks),
                             .k_at = (int64_t)gpu_blocks_offset(blocks, r->k_slot),
                             .v_at = (int64_t)gpu_blocks_offset(blocks, r->v_slot)};
    memcpy(shape->entries, slabs->entries, sizeof shape->entries);
    return GQAC_OK;
}

static gqac_status attend_in_blocks(gpu_work *w, const target_call *call, attending *t) {
    const gpu_grid grid = grid_of(t);
    enum { SLABS = 1, AFTER = SLABS + GPU_SLABS };
    attend_blocks shape;
    gpu_slabs slabs;
    operands o;
    GQAC_TRY(take_operands(w, call, t, &o));
    GQAC_TRY(bring_blocks(w, call->kv, t, &shape, &slabs));
    GQAC_TRY(gpu_list_write(w, lists_of(t), t->lists, t->bytes));
    gpu_arg args[AFTER + 6] = {[0] = GPU_ARG(o.q.handle),
                               [AFTER] = GPU_ARG(o.lists.handle),
                               GPU_ARG(o.bias.handle),
                               GPU_ARG(o.sink.handle),
                               GPU_ARG(o.y.handle),
                               GPU_ARG(t->shape),
                               GPU_ARG(shape)};
    for (int i = 0; i < GPU_SLABS; i++)
        args[SLABS + i] = GPU_ARG(slabs.handles[i]);
    GQAC_TRY(gpu_launch(w, t->record->kernel, &grid, GPU_COUNT(args), args));
    return gpu_done(w, &o.y, &t->y);
}

/* Takes memory for the lists. */
static gqac_status open_lists(const target_call *call, attending *t, op_scratch *scratch) {
    const size_t lists = 3 * (size_t)t->n, table = (size_t)(t->table.per * t->rows.n);
    GQAC_TRY(op_work_scratch_one(&call->work, lists + table, sizeof *t->lists, scratch));
    t->lists = (int32_t *)(void *)scratch->base;
    t->bytes = (lists + table) * sizeof *t->lists;
    t->table.at = (uint32_t *)t->lists + lists;
    memset(t->table.at, 0, table * sizeof *t->table.at); /* shorter sequences leave entries out */
    return GQAC_OK;
}

gqac_status gpu_attention_run(target_call *call, const void *record) {
    attending t = {.record = record};
    op_scratch scratch;
    GQAC_TRY(open_operands(call, &t));
    GQAC_TRY(open_blocks(call, &t));
    if (gqac_tensor_count(&t.y) == 0)
        return GQAC_OK;
    GQAC_TRY(open_lists(call, &t, &scratch));
    gqac_status status = list_rows(call, &t);
    if (status == GQAC_OK) {
        gpu_work w = gpu_take(call);
        status = (t.record->in_blocks ? attend_in_blocks : attend_rows)(&w, call, &t);
        gpu_give_back(&w);
    }
    op_scratch_close(&scratch);
    return status;
}
