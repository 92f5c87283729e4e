/* Attention on the cpu target: checks operands, finds keys and values in memory, divides the work
 * into units (attend_runs.c) and runs the level's kernel on each (level/attend.c).
 *
 * A unit is a run of rows of one key/value head. If there are too few of these for the threads,
 * keys are divided too, at multiples of the contract's split. Each split is then stored in memory,
 * and the thread that completes the last unit of some rows merges their splits in ascending order.
 * Keys that forks share are handled in the same way: one joint run reads them for the rows of
 * several sequences, and a run of each sequence reads the other keys. Keys that are stored as rows
 * are transposed, for all units at once if more than one unit reads them. */
#include "targets/cpu/attention.h"

#include <stdatomic.h>
#include <string.h>

#include "base/parts.h"
#include "numerics/contract.h"
#include "numerics/convert.h"
#include "ops/visible.h"
#include "targets/cpu/attend_runs.h"
#include "targets/cpu/kv.h"

enum { ALONE_NS = 20000 /* shorter work runs on one thread */ };
#define PACK_MOST ((size_t)1 << 29) /* maximum number of bytes for keys as columns */

/* Keys or values: the operand, and where its rows or codes are stored. */
typedef struct stored {
    gqac_tensor rows; /* type and shape of the operand */
    const void *data; /* of rows or codes; NULL: they are in blocks */
    bool in_blocks;
} stored;

typedef struct attending {
    const cpu_attend_record *record;
    const gqac_tensor *q;
    cpu_attend a;
    stored stored[2]; /* keys, values */
    const struct cpu_attend_kernels *kernels;
    const kv_batch *packed_kv; /* sequences of packed queries; NULL: queries are [B,Hq,S,D] */
    int threads;
    int64_t key_blocks;
    attend_runs runs;
    /* scratch, laid out by take_scratch; a.parts, the splits to be merged, is also scratch */
    unsigned char *units; /* [threads][unit_bytes], of the level's kernel */
    size_t unit_bytes;
    int32_t *lo, *hi;                /* [rows]: the first visible key, and the key after the last */
    const unsigned char **tables[2]; /* addresses of the blocks of keys and values */
    atomic_int *left;                /* [runs][Hkv]: number of units for which a run still waits */
    float *packed;                   /* keys as columns */
    int32_t *of;                     /* [units]: index of a unit's run */
} attending;

/* ---- operands ------------------------------------------------------------ */

/* Opens the codes from which the fused kv_dequantise would compute rows. */
static gqac_status open_codes(const target_call *call, const cpu_attend_stored *of,
                              cpu_attend_rows *rows, stored *s) {
    const gqac_tensor *codes = target_value(call, of->value);
    rows->bits = of->bits;
    rows->size = (int)of->size;
    rows->scale_step = of->per_channel;
    if (codes->dtype != (rows->bits == 4 ? GQAC_U8 : GQAC_I8) || codes->rank != 4 ||
        codes->dims[3] != cpu_attend_row_bytes(rows))
        OP_STOP(&call->work, GQAC_INVALID_INPUT,
                "codes of %lld channels must have the shape [B,H,T,%lld]", (long long)of->size,
                (long long)cpu_attend_row_bytes(rows));
    s->rows = *codes;
    s->rows.dtype = GQAC_F32;
    s->rows.dims[3] = of->size;
    s->data = codes->data;
    return GQAC_OK;
}

static gqac_status open_stored(const target_call *call, const cpu_attend_stored *of,
                               cpu_attend_rows *rows, stored *s) {
    const gqac_tensor *x = target_value(call, of->value);
    s->in_blocks = call->kv && of->slot >= 0;
    if (of->bits)
        return open_codes(call, of, rows, s);
    GQAC_TRY(op_floats(&call->work, x, "keys or values", 4));
    s->rows = *x;
    s->data = x->data;
    rows->dtype = x->dtype;
    rows->size = (int)x->dims[3];
    const kv_sequence *first = s->in_blocks && call->kv->sequences ? call->kv->sequences[0] : NULL;
    if (first && kv_sequence_has_codes(first, of->slot)) {
        rows->bits = kv_sequence_code_bits(first, of->slot);
        rows->scales_at = kv_slot_scales_at(kv_sequence_slot(first, of->slot), rows->bits);
    }
    return GQAC_OK;
}

/* Sets where the scales of codes are, unless they are in the blocks. */
static gqac_status set_scales(const target_call *call, const cpu_attend_stored *of, int64_t heads,
                              cpu_attend_rows *rows) {
    if (!of->bits)
        return GQAC_OK;
    return op_code_scales(&call->work, target_value(call, of->scale), of->per_channel, heads,
                          of->size, &rows->scale);
}

/* A mask that broadcasts to [B,Hq,S,columns]. */
static gqac_status set_mask(const target_call *call, const gqac_tensor *q, cpu_attend *a,
                            const gqac_tensor *mask) {
    if (!mask)
        return GQAC_OK;
    const int64_t scores[4] = {q->dims[0], a->q_heads, a->queries, a->keys};
    bool fits = mask->rank >= 1 && mask->rank <= 4;
    a->mask_columns = fits ? mask->dims[mask->rank - 1] : 0;
    int64_t step = a->mask_columns;
    for (int axis = 2; axis >= 0 && fits; axis--) {
        const int64_t dim = axis + mask->rank >= 4 ? mask->dims[axis + mask->rank - 4] : 1;
        fits = dim == 1 || dim == scores[axis];
        a->mask_step[axis] = dim == 1 ? 0 : step;
        step *= dim;
    }
    if (!fits)
        return op_misfit(&call->work, "mask", mask, scores);
    a->mask = mask->data ? mask->data : ""; /* with no columns, nothing is read */
    a->mask_dtype = mask->dtype;
    return GQAC_OK;
}

static gqac_status set_sink(const target_call *call, cpu_attend *a, const gqac_tensor *sink) {
    if (!sink)
        return GQAC_OK;
    GQAC_TRY(op_floats(&call->work, sink, "sink", 1));
    if (sink->dims[0] != a->q_heads)
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "there are %lld sinks for %lld heads",
                (long long)sink->dims[0], (long long)a->q_heads);
    a->sink = sink->data;
    a->sink_dtype = sink->dtype;
    return GQAC_OK;
}

/* ---- rows ---------------------------------------------------------------- */

/* True if the cache still has the row of this key; a windowed cache may have released it. */
static bool is_kept(const cpu_attend *a, int64_t b, int64_t key) {
    const int64_t block = b * a->k.per_batch + key / CPU_ATTEND_KEYS;
    return (!a->k.blocks || a->k.blocks[block]) && (!a->v.blocks || a->v.blocks[block]);
}

/* Checks that visible keys have a column in the bias, and a row in the tensor or cache. */
static gqac_status check_ranges(const target_call *call, const attending *t, int64_t columns) {
    const cpu_attend *a = &t->a;
    const bool blocks = a->k.blocks || a->v.blocks;
    for (int64_t b = 0; b < a->batch; b++) {
        const int64_t held = blocks ? call->kv->past[b] + call->kv->count[b] : a->keys;
        const int64_t rows = held < a->keys ? held : a->keys, first = attend_first_row(&t->runs, b);
        for (int64_t i = first; i < first + attend_queries(&t->runs, b); i++) {
            if (t->lo[i] >= t->hi[i])
                continue;
            if (t->lo[i] < 0 || t->hi[i] > rows || !is_kept(a, b, t->lo[i]))
                OP_STOP(&call->work, GQAC_OUT_OF_RANGE,
                        "visible keys [%d,%d) of row %lld do not lie in the %lld keys", t->lo[i],
                        t->hi[i], (long long)i, (long long)rows);
            if (t->hi[i] > columns)
                OP_STOP(&call->work, GQAC_INVALID_INPUT,
                        "the bias has %lld columns, but keys up to %d are visible in sequence %lld",
                        (long long)columns, t->hi[i] - 1, (long long)b);
        }
    }
    return GQAC_OK;
}

/* ---- where keys and values lie ------------------------------------------- */

/* Sets where keys or values are stored: in blocks of a cache, or in a tensor. */
static gqac_status set_rows(const target_call *call, attending *t, int which,
                            cpu_attend_rows *rows) {
    const stored *s = &t->stored[which];
    const size_t row = (size_t)cpu_attend_row_bytes(rows);
    if (!s->in_blocks) {
        if (!s->data && gqac_tensor_count(&s->rows) > 0)
            OP_STOP(&call->work, GQAC_INTERNAL, "input %d has no data", 1 + which);
        rows->base = s->data;
        rows->head = (size_t)s->rows.dims[2] * row;
        rows->batch = (size_t)s->rows.dims[1] * rows->head;
        rows->block = CPU_ATTEND_KEYS * row;
        return GQAC_OK;
    }
    const kv_batch *kv = call->kv;
    const int slot = t->record->stored[which].slot;
    const unsigned char **table = t->tables[which];
    rows->columns = kv_sequence_slot(kv->sequences[0], slot)->columns;
    rows->blocks = table;
    rows->per_batch = t->key_blocks;
    rows->head = CPU_ATTEND_KEYS * row;
    for (int b = 0; b < kv->n; b++)
        for (int64_t at = 0; at < kv->past[b] + kv->count[b]; at += CPU_ATTEND_KEYS)
            table[b * t->key_blocks + at / CPU_ATTEND_KEYS] =
                kv_block_memory(kv->sequences[b], slot, at);
    return GQAC_OK;
}

/* ---- keys as columns ----------------------------------------------------- */

static void pack_blocks(void *arg, size_t begin, size_t end, int worker) {
    const attending *t = arg;
    const cpu_attend_rows *k = &t->a.k;
    const size_t floats = (size_t)k->size * CPU_ATTEND_KEYS;
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        const int64_t index = (int64_t)item % t->key_blocks, head = (int64_t)item / t->key_blocks;
        const int64_t left = t->a.keys - index * CPU_ATTEND_KEYS;
        const unsigned char *rows = k->base + (size_t)head * k->head + (size_t)index * k->block;
        t->kernels->columns(k, head % t->a.kv_heads, rows,
                            left < CPU_ATTEND_KEYS ? (int)left : CPU_ATTEND_KEYS,
                            t->packed + item * floats);
    }
}

/* The number of bytes of all keys as columns; 0: each unit transposes its own keys. */
static size_t packed_bytes(const attending *t) {
    const size_t block = (size_t)t->a.size * CPU_ATTEND_KEYS * sizeof(float);
    size_t bytes;
    if (t->stored[0].in_blocks || attend_runs_of(&t->runs, 0) < 2 ||
        !gqac_mul_size((size_t)(t->a.batch * t->a.kv_heads), (size_t)t->key_blocks, &bytes) ||
        !gqac_mul_size(bytes, block, &bytes) || bytes > PACK_MOST)
        return 0;
    return bytes;
}

static void pack_keys(const target_call *call, attending *t) {
    cpu_attend_rows *k = &t->a.k;
    op_work_parallel(&call->work, t->a.batch * t->a.kv_heads * t->key_blocks,
                     (int64_t)k->size * CPU_ATTEND_KEYS / 2, pack_blocks, t);
    k->base = (const unsigned char *)t->packed;
    k->dtype = GQAC_F32;
    k->bits = 0;
    k->columns = true;
    k->block = (size_t)k->size * CPU_ATTEND_KEYS * sizeof(float);
    k->head = k->block * (size_t)t->key_blocks;
    k->batch = k->head * (size_t)t->a.kv_heads;
}

/* ---- units --------------------------------------------------------------- */

/* Computes the numbers of blocks and splits of the keys. */
static void plan(attending *t) {
    cpu_attend *a = &t->a;
    t->key_blocks = (a->keys + CPU_ATTEND_KEYS - 1) / CPU_ATTEND_KEYS;
    a->split = GQAC_KEY_SPLIT;
#ifdef GQAC_CONTROL_CPU_SPLIT_BY_THREADS /* negative control: splits follow the number of threads  \
                                          */
    a->split = CPU_ATTEND_KEYS * t->threads;
#endif
    a->splits = (a->keys + a->split - 1) / a->split;
}

static void run_unit(void *arg, size_t item, int worker) {
    attending *t = arg;
    const cpu_attend *a = &t->a;
    float *scratch = (float *)(void *)(t->units + (size_t)worker * t->unit_bytes);
    const int64_t unit = (int64_t)item / a->kv_heads, head = (int64_t)item % a->kv_heads;
    const attend_run *r = &t->runs.list[t->of[unit]];
    const cpu_attend_unit u = attend_runs_unit(&t->runs, r, head, unit - r->first_unit);
    t->kernels->run(a, &u, scratch);
    for (int64_t own = r->own; u.cut && own < r->own + r->members; own++)
        if (atomic_fetch_sub_explicit(&t->left[own * a->kv_heads + head], 1,
                                      memory_order_acq_rel) == 1) {
            const cpu_attend_unit whole = attend_runs_unit(&t->runs, &t->runs.list[own], head, 0);
            t->kernels->join(a, &whole, scratch);
        }
}

static void run_units(const target_call *call, attending *t) {
    const cpu_attend *a = &t->a;
    int64_t visible = 0;
    for (int64_t i = 0; i < a->rows; i++)
        visible += a->hi[i] > a->lo[i] ? a->hi[i] - a->lo[i] : 0;
    for (int32_t i = 0; i < t->runs.n; i++) {
        const attend_run *r = &t->runs.list[i];
        for (int64_t unit = 0; unit < r->pieces; unit++)
            t->of[r->first_unit + unit] = i;
        for (int64_t head = 0; head < a->kv_heads && t->left; head++)
            atomic_init(&t->left[i * a->kv_heads + head], (int)r->waits);
    }
    const int64_t ns = visible * a->q_heads * (a->size + a->value_size) / 16;
    gqac_pool_queue(ns < ALONE_NS ? NULL : call->work.pool, (size_t)(t->runs.n_units * a->kv_heads),
                    run_unit, t);
}

/* ---- scratch ------------------------------------------------------------- */

static bool has_tables(const attending *t) {
    return t->stored[0].in_blocks || t->stored[1].in_blocks;
}

/* Sets the addresses of the arrays in the scratch of a call. */
static void take_scratch(attending *t, gqac_parts *p) {
    cpu_attend *a = &t->a;
    const size_t packed = packed_bytes(t);
    const int64_t entries = has_tables(t) ? a->batch * t->key_blocks : 0;
    const int64_t parts = a->kv_heads * a->cut_rows * a->splits * cpu_attend_part(a);
    t->units = gqac_parts_take(p, t->threads, t->unit_bytes);
    t->lo = gqac_parts_take(p, a->rows, sizeof *t->lo);
    t->hi = gqac_parts_take(p, a->rows, sizeof *t->hi);
    for (int i = 0; i < 2; i++)
        t->tables[i] = gqac_parts_take(p, entries, sizeof *t->tables[i]);
    a->parts = parts ? gqac_parts_take(p, parts, sizeof *a->parts) : NULL;
    t->left = parts ? gqac_parts_take(p, t->runs.n * a->kv_heads, sizeof *t->left) : NULL;
    t->packed = packed ? gqac_parts_take(p, (int64_t)packed, 1) : NULL;
    t->of = gqac_parts_take(p, t->runs.n_units, sizeof *t->of);
}

/* The number of bytes of these arrays; false: overflow. */
static bool scratch_bytes(attending *t, size_t *bytes) {
    gqac_parts p = {.base = NULL};
    t->unit_bytes = (t->kernels->scratch(&t->a) * sizeof(float) + 63) & ~(size_t)63;
    take_scratch(t, &p);
    *bytes = p.bytes;
    return !p.overflow;
}

/* Allocates the scratch of a call in one piece; op_scratch_close frees it. */
static gqac_status open_scratch(const target_call *call, attending *t, op_scratch *scratch) {
    size_t bytes;
    if (!scratch_bytes(t, &bytes))
        return gqac_diag_oom(call->work.diag, "attention");
    GQAC_TRY(op_work_scratch_one(&call->work, bytes, 1, scratch));
    gqac_parts p = {.base = scratch->base};
    take_scratch(t, &p);
    for (int i = 0; i < 2 && has_tables(t); i++)
        memset(t->tables[i], 0, (size_t)(t->a.batch * t->key_blocks) * sizeof *t->tables[i]);
    return GQAC_OK;
}

/* ---- the kernels --------------------------------------------------------- */

static gqac_status finish(const target_call *call, attending *t) {
    GQAC_TRY(set_rows(call, t, 0, &t->a.k));
    GQAC_TRY(set_rows(call, t, 1, &t->a.v));
    const bool bias = t->a.mask && !t->record->attends;
    GQAC_TRY(check_ranges(call, t, bias ? t->a.mask_columns : INT32_MAX));
    t->a.lo = t->lo;
    t->a.hi = t->hi;
    if (t->packed)
        pack_keys(call, t);
    run_units(call, t);
    return GQAC_OK;
}

/* Sets where queries are stored: in a tensor of their own, or in the packed row. */
static gqac_status set_queries(const target_call *call, const cpu_attend_record *of,
                               const gqac_tensor *q, cpu_attend *a) {
    const gqac_tensor *x = target_value(call, of->packed);
    a->q_dtype = q->dtype;
    a->q = q->data;
    a->q_row = q->dims[3];
    a->q_head = q->dims[2] * a->q_row;
    a->q_batch = q->dims[1] * a->q_head;
    if (!x)
        return GQAC_OK;
    if (x->dtype != q->dtype || x->rank != 3 || x->dims[0] != q->dims[0] ||
        x->dims[1] != q->dims[2] || x->dims[2] < of->column + q->dims[1] * q->dims[3])
        OP_STOP(&call->work, GQAC_INTERNAL, "queries do not lie in the packed row");
    a->q = (const unsigned char *)x->data + (size_t)of->column * op_width(x->dtype);
    a->q_head = q->dims[3];
    a->q_row = x->dims[2];
    a->q_batch = x->dims[1] * a->q_row;
    return GQAC_OK;
}

static gqac_status open_shown(target_call *call, const attending *t, cpu_attend *a) {
    const cpu_attend_record *of = t->record;
    gqac_tensor shown = {
        .dtype = GQAC_F32, .rank = 4, .dims = {t->q->dims[0], a->q_heads, a->queries, a->keys}};
    if (a->show == CPU_SHOW_NONE)
        return GQAC_OK;
    if (a->show == CPU_SHOW_MASKED && of->attends)
        a->shown_hidden = -gqn_as_f32(GQN_INF_BITS);
    GQAC_TRY(target_give(call, of->shown, &shown));
    a->shown = shown.data;
    return GQAC_OK;
}

/* Checks types and shapes of queries, keys and values, and sets all sizes. */
static gqac_status open_operands(const target_call *call, int threads, attending *t) {
    const cpu_attend_record *of = t->record;
    cpu_attend_rows rows[2] = {{0}};
    const gqac_tensor *q = t->q = target_value(call, of->q);
    GQAC_TRY(op_floats(&call->work, q, "q", 4));
    for (int i = 0; i < 2; i++)
        GQAC_TRY(open_stored(call, &of->stored[i], &rows[i], &t->stored[i]));
    const gqac_tensor *k = &t->stored[0].rows, *v = &t->stored[1].rows;
    const kv_batch *kv = call->kv && call->kv->packed && q->dims[0] == 1 ? call->kv : NULL;
    const int64_t batch = kv ? kv->n : q->dims[0];
    GQAC_TRY(op_heads_fit(&call->work, batch, q, k, v, CPU_ATTEND_SIZE));
    t->kernels = cpu_level_of(call)->attend;
    t->threads = threads;
    t->packed_kv = kv;
    t->a = (cpu_attend){.batch = batch,
                        .q_heads = q->dims[1],
                        .kv_heads = k->dims[1],
                        .group = q->dims[1] / k->dims[1],
                        .queries = q->dims[2],
                        .rows = q->dims[0] * q->dims[2],
                        .keys = k->dims[2],
                        .size = (int)q->dims[3],
                        .value_size = (int)v->dims[3],
                        .bf16 = of->bf16,
                        .scale = of->scale,
                        .softcap = of->softcap,
                        .k = rows[0],
                        .v = rows[1],
                        .y_dtype = v->dtype,
                        .show = of->show};
    if (t->a.keys > INT32_MAX)
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "%lld keys are too many: must be below 2^31",
                (long long)t->a.keys);
    plan(t);
    return GQAC_OK;
}

/* Sets where queries, scales and results are. */
static gqac_status open_memory(target_call *call, attending *t) {
    const cpu_attend_record *of = t->record;
    gqac_tensor y = {.dtype = t->a.y_dtype,
                     .rank = 3,
                     .dims = {t->q->dims[0], t->a.queries, t->a.q_heads * t->a.value_size}};
    GQAC_TRY(set_scales(call, &of->stored[0], t->a.kv_heads, &t->a.k));
    GQAC_TRY(set_scales(call, &of->stored[1], t->a.kv_heads, &t->a.v));
    GQAC_TRY(set_queries(call, of, t->q, &t->a));
    GQAC_TRY(target_give(call, of->y, &y));
    t->a.y = y.data;
    if (t->packed_kv)
        t->a.q_batch = 0; /* all queries are in one batch row */
    return open_shown(call, t, &t->a);
}

/* Sets the visible range of each row: computed from lengths, or as given. */
static gqac_status set_ranges(const target_call *call, attending *t) {
    const cpu_attend_record *of = t->record;
    const int64_t batch = t->q->dims[0];
    const int32_t *lo, *hi;
    if (!of->attends) {
        attention_rows rows;
        GQAC_TRY(op_rows_fit(&call->work, target_value(call, of->past_len),
                             target_value(call, of->new_len), batch, t->a.queries, &rows));
        op_visible(&rows, of->causal, of->window, t->lo, t->hi);
        return GQAC_OK;
    }
    GQAC_TRY(op_ranges(&call->work, target_value(call, of->lo), target_value(call, of->hi), batch,
                       t->a.queries, t->a.keys, &lo, &hi));
    memcpy(t->lo, lo, sizeof *lo * (size_t)t->a.rows);
    memcpy(t->hi, hi, sizeof *hi * (size_t)t->a.rows);
    return GQAC_OK;
}

gqac_status cpu_attention_scratch(const target_call *call, int threads, const void *record,
                                  gqac_parts *parts) {
    attending t = {.record = record};
    size_t bytes;
    GQAC_TRY(open_operands(call, threads, &t));
    if (t.a.rows == 0)
        return GQAC_OK;
    attend_runs_count(&t.runs, &t.a, t.packed_kv);
    attend_runs_measure(&t.runs, threads);
    t.a.cut_rows = t.runs.cut_rows;
    op_scratch_measure_one(parts, (size_t)t.runs.n, sizeof *t.runs.list);
    if (scratch_bytes(&t, &bytes))
        op_scratch_measure_one(parts, bytes, 1);
    else
        parts->overflow = true;
    return GQAC_OK;
}

/* Runs attention after the operands have been checked. */
static gqac_status attend_all(const target_call *call, attending *t) {
    op_scratch runs, scratch;
    attend_runs_count(&t->runs, &t->a, t->packed_kv);
    GQAC_TRY(op_work_scratch_one(&call->work, (size_t)t->runs.n, sizeof *t->runs.list, &runs));
    t->runs.list = (attend_run *)(void *)runs.base;
    attend_runs_make(&t->runs, t->threads);
    t->a.cut_rows = t->runs.cut_rows;
    gqac_status status = open_scratch(call, t, &scratch);
    if (status == GQAC_OK) {
        status = set_ranges(call, t);
        if (status == GQAC_OK)
            status = finish(call, t);
        op_scratch_close(&scratch);
    }
    op_scratch_close(&runs);
    return status;
}

/* Checks the mask: a bias is floats, the mask of an `attend` may also be bools. */
static gqac_status check_mask(const target_call *call, const attending *t,
                              const gqac_tensor *mask) {
    if (!mask)
        return GQAC_OK;
    if (!t->record->attends)
        return op_floats(&call->work, mask, "bias", 4);
    if (!OP_IN(OP_FLOATS | OP_BIT(BOOL), mask->dtype))
        OP_STOP(&call->work, GQAC_INVALID_INPUT,
                "input 'mask' has the type %s: must be bool or a float type",
                gqac_dtype_name(mask->dtype));
    return GQAC_OK;
}

gqac_status cpu_attention_run(target_call *call, const void *record) {
    attending t = {.record = record};
    cpu_attend *a = &t.a;
    const gqac_tensor *mask = target_value(call, t.record->mask);
    GQAC_TRY(open_operands(call, call->work.pool ? gqac_pool_threads(call->work.pool) : 1, &t));
    GQAC_TRY(open_memory(call, &t));
    GQAC_TRY(check_mask(call, &t, mask));
    GQAC_TRY(set_mask(call, t.q, a, mask));
    if (t.record->attends && a->mask &&
        (a->mask_columns > a->keys || (t.record->every && a->mask_columns != a->keys)))
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "the mask has %lld columns for %lld keys",
                (long long)a->mask_columns, (long long)a->keys);
    GQAC_TRY(set_sink(call, a, target_value(call, t.record->sink)));
    if (a->rows == 0) /* then there may be any number of batch rows */
        return GQAC_OK;
    return attend_all(call, &t);
}
