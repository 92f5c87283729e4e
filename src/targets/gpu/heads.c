/* Heads on the gpu target: checks operands, finds the position of each row and where it is cached,
 * and launches kernels/heads.cl. */
#include "targets/gpu/heads.h"

#include <string.h>

#include "numerics/contract.h"
#include "ops/visible.h"
#include "targets/gpu/append.h"

enum {
    ITEMS = 128, /* of a group with several rows */
    FOUR = 16    /* most bytes of four elements */
};

/* heads_stream and heads_shape of kernels/heads.cl. */
typedef struct heads_stream {
    int64_t batch_step, head_step, row_step, column;
    int64_t slot_at, copy_at, slot_scales_at, copy_scales_at;
    int32_t heads, rows, count, size, half_size;
    int32_t x_type, type;
    int32_t norms, before_type;
    int32_t rotates, interleaved, positions;
    int32_t appends, places, bits, scale_step;
    int32_t stored, coded, aligned;
    float epsilon;
} heads_stream;
typedef struct heads_shape {
    heads_stream streams[TARGET_STREAMS];
    int64_t entry_bytes;
    int32_t entries[GPU_SLABS];
    int32_t shift, rows;
} heads_shape;
_Static_assert(sizeof(heads_stream) == 144 && sizeof(heads_shape) == 512,
               "the kernel has no padding either");
_Static_assert(TARGET_HEAD_SIZE == 1024, "that of the kernel");

typedef struct making {
    target_call *call;
    const gpu_heads_record *record;
    target_heads_run runs[TARGET_STREAMS];
    gqac_tensor y; /* queries; rank 0: there are none */
    int n_new;     /* slots that get rows: the last streams */
    gpu_new fresh[TARGET_STREAMS];
    bool on_device[TARGET_STREAMS]; /* the device has blocks for these rows */
    heads_shape shape;
    int64_t heads, most;         /* of all streams; rows of the longest */
    int32_t *positions, *places; /* lists of the kernel */
    int64_t n_positions, n_places;
    gpu_table table;
} making;

/* ---- operands ------------------------------------------------------------------ */

/* The rows that are stored: heads of `type`, or their codes; no data. */
static gqac_status stored_rows(making *m, int i, gqac_tensor *rows) {
    const target_stream *s = &m->record->of.streams[i];
    const target_heads_run *r = &m->runs[i];
    const float *scales;
    *rows = (gqac_tensor){
        .dtype = r->type, .rank = 4, .dims = {r->batch, r->heads, r->rows, r->of->size}};
    if (s->bits == 0)
        return GQAC_OK;
    const op_work work = target_work(m->call, &s->quantise);
    rows->dtype = s->bits == 8 ? GQAC_I8 : GQAC_U8;
    rows->dims[3] = s->bits == 8 ? r->of->size : (r->of->size + 1) / 2;
    return op_code_scales(&work, target_value(m->call, s->scale), s->per_channel, r->heads,
                          r->of->size, &scales);
}

/* Sets the results of a kv_append. */
static gqac_status open_append(making *m, int i) {
    target_call *call = m->call;
    const target_stream *s = &m->record->of.streams[i];
    const op_work work = target_work(call, &s->append);
    gqac_tensor rows;
    GQAC_TRY(stored_rows(m, i, &rows));
    GQAC_TRY(target_kv_fit(call, &work, &rows, s->slot));
    m->fresh[m->n_new++] =
        (gpu_new){.rows = rows,
                  .slot = s->slot,
                  .bits = kv_sequence_code_bits(call->kv->sequences[0], s->slot)};
    m->on_device[i] = gpu_blocks_has_slot(gpu_blocks_of(call->state, call->kv), s->slot);
    target_give_token(call, s->token);
    rows.dims[0] = call->kv->n;
    rows.dims[2] = target_kv_total_rows(call->kv);
    target_set(call, s->rows, &rows);
    return GQAC_OK;
}

static gqac_status open_stream(making *m, int i) {
    const target_stream *s = &m->record->of.streams[i];
    target_heads_run *r = &m->runs[i];
    GQAC_TRY(target_heads_open(m->call, &s->heads, r));
    GQAC_TRY(gpu_fits(&m->call->work, r->x));
    if (s->end == TARGET_TO_BLOCKS) {
        GQAC_TRY(open_append(m, i));
    } else {
        m->y = (gqac_tensor){
            .dtype = r->type, .rank = 4, .dims = {r->batch, r->heads, r->rows, r->of->size}};
        GQAC_TRY(target_give(m->call, s->y, &m->y));
    }
    const int64_t size = r->of->size;
    const int coded = s->end == TARGET_TO_BLOCKS ? m->fresh[m->n_new - 1].bits : 0;
    m->shape.streams[i] = (heads_stream){
        .batch_step = r->step_b,
        .head_step = r->step_h,
        .row_step = r->step_s,
        .column = r->of->column,
        .heads = (int32_t)r->heads,
        .rows = (int32_t)r->rows,
        .count = (int32_t)(r->batch * r->rows),
        .size = (int32_t)size,
        .half_size = r->of->rotates ? (int32_t)r->r.half : 0,
        .x_type = (int32_t)gpu_type_of(r->x->dtype),
        .type = (int32_t)gpu_type_of(r->type),
        .norms = r->of->norms,
        .before_type = r->round_before ? (int32_t)gpu_type_of(r->x->dtype) : (int32_t)GPU_ROWS_F32,
        .rotates = r->of->rotates,
        .interleaved = r->of->rotates && r->r.interleaved,
        .appends = s->end == TARGET_TO_BLOCKS,
        .places = -1,
        .bits = s->bits,
        .scale_step = s->per_channel,
        .stored = (int32_t)(s->bits || coded ? kv_code_bytes(size, s->bits + coded)
                                             : size * (int64_t)op_width(r->type)),
        .coded = coded,
        .aligned = (size | r->of->column | r->step_b | r->step_h | r->step_s) % 4 == 0,
        .epsilon = r->of->epsilon};
    m->heads += r->heads;
    m->most = r->batch * r->rows > m->most ? r->batch * r->rows : m->most;
    return GQAC_OK;
}

/* ---- lists --------------------------------------------------------------------- */

/* The positions of the rows of a stream; those of an earlier one if they are the same. */
static void list_positions(making *m, int i) {
    const target_heads_run *r = &m->runs[i];
    heads_stream *to = &m->shape.streams[i];
    for (int k = 0; k < i; k++) {
        const target_heads *a = m->runs[k].of, *b = r->of;
        if (a->rotates && m->runs[k].rows == r->rows && m->runs[k].batch == r->batch &&
            a->past_len == b->past_len && a->new_len == b->new_len &&
            a->position_ids == b->position_ids) {
            to->positions = m->shape.streams[k].positions;
            return;
        }
    }
    to->positions = (int32_t)m->n_positions;
    for (int64_t b = 0; b < r->batch; b++)
        for (int64_t s = 0; s < r->rows; s++)
            m->positions[m->n_positions++] =
                rotary_is_pad(&r->r, b, s) ? -1 : (int32_t)rotary_position(&r->r, b, s);
}

/* Entries and rows of blocks for the rows of a stream. */
static void list_places(making *m, int i) {
    const kv_batch *kv = m->call->kv;
    const target_heads_run *r = &m->runs[i];
    heads_stream *to = &m->shape.streams[i];
    for (int k = 0; k < i; k++)
        if (m->on_device[k] && m->runs[k].rows == r->rows) {
            to->places = m->shape.streams[k].places;
            return;
        }
    to->places = (int32_t)m->n_places;
    int32_t *entry = m->places + m->n_places, *row = entry + to->count;
    m->n_places += 2 * (int64_t)to->count;
    for (int64_t k = 0; k < to->count; k++) {
        entry[k] = -1;
        row[k] = 0;
    }
    for (int64_t b = 0; b < kv->n; b++) {
        const int64_t begin = kv_batch_row(kv, b) * r->rows + target_kv_begin(kv, b);
        for (int64_t k = 0; k < kv->count[b]; k++) {
            const int64_t position = kv->past[b] + k;
            entry[begin + k] = (int32_t)m->table.at[b * m->table.per + position / GQAC_KV_BLOCK];
            row[begin + k] = (int32_t)(position % GQAC_KV_BLOCK);
        }
    }
}

/* Memory for the lists and the table of blocks. */
static gqac_status open_lists(making *m, op_scratch *scratch) {
    const kv_batch *kv = m->n_new ? m->call->kv : NULL;
    const int64_t total = kv ? target_kv_total_rows(kv) : 0;
    int64_t rows = 0;
    for (int i = 0; i < m->record->of.n; i++)
        rows += m->shape.streams[i].count;
    m->table.per = (total + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK;
    const size_t table = (size_t)(kv ? m->table.per * kv->n : 0);
    GQAC_TRY(
        op_work_scratch_one(&m->call->work, 3 * (size_t)rows + table, sizeof *m->places, scratch));
    m->positions = (int32_t *)(void *)scratch->base;
    m->places = m->positions + rows;
    m->table.at = (uint32_t *)(m->places + 2 * rows);
    for (int i = 0; i < m->record->of.n; i++)
        if (m->runs[i].of->rotates)
            list_positions(m, i);
    return GQAC_OK;
}

/* ---- the kernel ---------------------------------------------------------------- */

typedef struct operands {
    gpu_buffer x[TARGET_STREAMS], weight[TARGET_STREAMS], cos[TARGET_STREAMS], sin[TARGET_STREAMS];
    gpu_buffer scale[TARGET_STREAMS], y, copies, positions, places;
    gpu_slabs slabs;
} operands;

static gqac_status take_operands(gpu_work *w, making *m, operands *o) {
    for (int i = 0; i < m->record->of.n; i++) {
        const gpu_heads_operands *from = &m->record->operands[i];
        GQAC_TRY(gpu_in_as_is(w, m->runs[i].x, &o->x[i]));
        GQAC_TRY(gpu_operand_in(w, m->call, &from->weight, &o->x[i], &o->weight[i]));
        GQAC_TRY(gpu_operand_in(w, m->call, &from->cos, &o->x[i], &o->cos[i]));
        GQAC_TRY(gpu_operand_in(w, m->call, &from->sin, &o->x[i], &o->sin[i]));
        GQAC_TRY(gpu_operand_in(w, m->call, &from->scale, &o->x[i], &o->scale[i]));
    }
    for (int i = m->record->of.n; i < TARGET_STREAMS; i++)
        o->x[i] = o->weight[i] = o->cos[i] = o->sin[i] = o->scale[i] = o->x[0];
    o->y = o->copies = o->positions = o->places = o->x[0];
    if (m->y.rank)
        GQAC_TRY(gpu_out_as_is(w, &m->y, &o->y));
    const size_t bytes = (size_t)m->n_positions * sizeof *m->positions;
    if (bytes)
        GQAC_TRY(gpu_list_take(w, GPU_LIST_POSITIONS, bytes, &o->positions));
    return bytes ? gpu_list_write(w, GPU_LIST_POSITIONS, m->positions, bytes) : GQAC_OK;
}

/* Memory for new rows, and the blocks that they belong to. */
static gqac_status take_blocks(gpu_work *w, making *m, operands *o) {
    gpu_blocks *blocks = gpu_blocks_of(w->state, m->call->kv);
    const kv_batch *kv = m->call->kv;
    const target_streams *of = &m->record->of;
    int64_t most = 0;
    GQAC_TRY(gpu_new_rows_take(w, kv, m->n_new, m->fresh, &o->copies));
    for (int i = 0, k = 0; i < of->n; i++) {
        heads_stream *s = &m->shape.streams[i];
        if (of->streams[i].end == TARGET_TO_BLOCKS) {
            s->copy_at = (int64_t)m->fresh[k].at;
            s->aligned = s->aligned && (s->coded || s->bits || s->copy_at % FOUR == 0);
            s->copy_scales_at = (int64_t)m->fresh[k++].scales_at;
        }
        most += m->on_device[i] ? 2 * (int64_t)s->count : 0;
    }
    if (most == 0)
        return GQAC_OK;
    GQAC_TRY(gpu_list_take(w, GPU_LIST_APPEND, (size_t)most * sizeof *m->places, &o->places));
    GQAC_TRY(gpu_place(w, kv, &m->table));
    for (int i = 0; i < of->n; i++) {
        if (!m->on_device[i])
            continue;
        GQAC_TRY(gpu_blocks_fill(blocks, kv, of->streams[i].slot, false, w->work->diag));
        m->shape.streams[i].slot_at = (int64_t)gpu_blocks_offset(blocks, of->streams[i].slot);
        m->shape.streams[i].slot_scales_at =
            (int64_t)gpu_blocks_scales_at(blocks, of->streams[i].slot);
        list_places(m, i);
    }
    o->slabs = gpu_blocks_slabs(blocks);
    m->shape.entry_bytes = (int64_t)gpu_blocks_entry_bytes(blocks);
    memcpy(m->shape.entries, o->slabs.entries, sizeof m->shape.entries);
    return gpu_list_write(w, GPU_LIST_APPEND, m->places, (size_t)m->n_places * sizeof *m->places);
}

/* Items of a head, which have four elements each, and heads of a group. */
static void set_teams(making *m) {
    int32_t shift = 0;
    while (1 << shift < GQAC_LANES)
        shift++;
    for (int i = 0; i < m->record->of.n; i++)
        while (4 << shift < m->shape.streams[i].size)
            shift++;
    m->shape.shift = shift;
    m->shape.rows = 1;
    while (2 * m->shape.rows << shift <= ITEMS && m->shape.rows < m->most)
        m->shape.rows *= 2;
}

static gqac_status launch(gpu_work *w, making *m) {
    enum { SLABS = 5 * TARGET_STREAMS, AFTER = SLABS + GPU_SLABS };
    operands o;
    GQAC_TRY(take_operands(w, m, &o));
    for (int i = 0; i < GPU_SLABS; i++)
        o.slabs.handles[i] = o.x[0].handle; /* not written */
    if (m->n_new)
        GQAC_TRY(take_blocks(w, m, &o));
    gpu_arg args[AFTER + 5] = {[AFTER] = GPU_ARG(o.y.handle),
                               GPU_ARG(o.copies.handle),
                               GPU_ARG(o.positions.handle),
                               GPU_ARG(o.places.handle),
                               GPU_ARG(m->shape)};
    gpu_buffer *const all[] = {o.x, o.weight, o.cos, o.sin, o.scale};
    for (int i = 0; i < SLABS; i++)
        args[i] = GPU_ARG(all[i / TARGET_STREAMS][i % TARGET_STREAMS].handle);
    for (int i = 0; i < GPU_SLABS; i++)
        args[SLABS + i] = GPU_ARG(o.slabs.handles[i]);
    set_teams(m);
    const int64_t rows = m->shape.rows;
    const gpu_grid grid = {.groups = {(size_t)m->heads, (size_t)((m->most + rows - 1) / rows)},
                           .items = {(size_t)(rows << m->shape.shift), 1}};
    GQAC_TRY(gpu_launch(w, GPU_HEADS, &grid, GPU_COUNT(args), args));
    for (int i = 0; i < m->record->of.n; i++)
        if (m->on_device[i])
            gpu_blocks_written(gpu_blocks_of(w->state, m->call->kv), m->record->of.streams[i].slot);
    return GQAC_OK;
}

gqac_status gpu_heads_run(target_call *call, const void *record) {
    const gpu_heads_record *r = record;
    making m = {.call = call, .record = r};
    op_scratch scratch;
    for (int i = 0; i < r->of.n; i++)
        GQAC_TRY(open_stream(&m, i));
    if (m.heads == 0 || m.most == 0)
        return GQAC_OK;
    GQAC_TRY(open_lists(&m, &scratch));
    gpu_work w = gpu_take(call);
    const gqac_status status = launch(&w, &m);
    gpu_give_back(&w);
    op_scratch_close(&scratch);
    return status;
}
