/* New rows on the device, and their way to the host: see append.h. */
#include "targets/gpu/append.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "ops/visible.h"
#include "targets/gpu/mirror.h"

enum {
    ITEMS = 64,
    ALIGNMENT = 4,
    MOST = 64 << 20 /* bytes of the buffer, unless one slot needs more */
};

/* ---- the rows that the host lacks ---------------------------------------------- */

typedef struct new_rows {
    gqac_tensor rows; /* as the kernel read them; no data */
    int slot;
    size_t at; /* in the buffer */
} new_rows;

struct gpu_new_rows {
    gpu_state *state;
    target_copies *copies;
    gpu_buffer buffer;
    size_t used;
    unsigned char *staging; /* the buffer, on the host */
    size_t staged;
    const kv_batch *kv; /* of the run */
    new_rows *list;
    size_t n, capacity;
};

gpu_new_rows *gpu_new_rows_open(gpu_state *state, target_copies *copies) {
    gpu_new_rows *r = gqac_calloc(1, sizeof *r);
    if (r) {
        r->state = state;
        r->copies = copies;
    }
    return r;
}

void gpu_new_rows_close(gpu_new_rows *r) {
    if (!r)
        return;
    gpu_release(r->state, &r->buffer);
    gqac_free(r->staging);
    gqac_free(r->list);
    gqac_free(r);
}

void gpu_new_rows_forget(gpu_new_rows *r) {
    r->used = r->n = 0;
}

gqac_status gpu_new_rows_flush(gpu_new_rows *r, gqac_diag *diag) {
    if (r->n == 0)
        return GQAC_OK;
    if (!gqac_reserve(&r->staging, r->used, &r->staged, 1))
        return gqac_diag_oom(diag, "new rows of a device");
    GQAC_TRY(gpu_download(r->state, &r->buffer, r->staging, r->used, diag));
    r->copies->down++;
    r->copies->down_bytes += (int64_t)r->used;
    for (size_t i = 0; i < r->n; i++) {
        r->list[i].rows.data = r->staging + r->list[i].at;
        target_kv_write(r->kv, &r->list[i].rows, r->list[i].slot);
    }
    gpu_new_rows_forget(r);
    return GQAC_OK;
}

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t gpu_new_rows_bytes(const gpu_blocks *blocks, size_t n) {
    size_t bytes;
    const size_t row = gpu_blocks_entry_bytes(blocks) / GQAC_KV_BLOCK;
    return gqac_mul_size(n, row, &bytes) && bytes < MOST ? bytes : MOST;
}

/* Memory for the rows of a slot: those bytes of *buffer from *at on. What is there is written to
 * the host first if there is too little. */
static gqac_status take(gpu_work *w, const kv_batch *kv, const gqac_tensor *rows, int slot,
                        gpu_buffer *buffer, size_t *at) {
    gpu_new_rows *r = gpu_mirror_new_rows(w);
    const size_t bytes = aligned(gqac_tensor_bytes(rows));
    if (r->used + bytes > r->buffer.bytes) {
        const size_t n = (size_t)(rows->dims[0] * rows->dims[2]);
        const size_t all = gpu_new_rows_bytes(gpu_state_blocks(w->state), n);
        GQAC_TRY(gpu_new_rows_flush(gpu_mirror_new_rows(w), w->work->diag));
        if (r->buffer.bytes < bytes || r->buffer.bytes < all) {
            gpu_release(w->state, &r->buffer);
            GQAC_TRY(gpu_allocate(w->state, all > bytes ? all : bytes, &r->buffer, w->work->diag));
        }
    }
    if (!gqac_reserve(&r->list, r->n + 1, &r->capacity, sizeof *r->list))
        return gqac_diag_oom(w->work->diag, "new rows of a device");
    *buffer = r->buffer;
    *at = r->used;
    r->kv = kv;
    r->used += bytes;
    r->list[r->n++] = (new_rows){.rows = *rows, .slot = slot, .at = *at};
    return GQAC_OK;
}

gqac_status gpu_bring_rows(gpu_work *w, const kv_batch *kv, int slot, const gpu_table *table) {
    gpu_blocks *blocks = gpu_state_blocks(w->state);
    if (!gpu_blocks_has_new(blocks, kv, slot, table)) /* replaced since they were written */
        GQAC_TRY(gpu_new_rows_flush(gpu_mirror_new_rows(w), w->work->diag));
    return gpu_blocks_fill(blocks, kv, slot, table, true, w->work->diag);
}

/* ---- the kernel ------------------------------------------------------------------ */

/* append_shape of kernels/rows.cl. */
typedef struct append_shape {
    int64_t entry_bytes, at, copy_at;
    int32_t heads, rows, size, n, slab, entries;
} append_shape;
_Static_assert(sizeof(append_shape) == 48, "the kernel has no padding either");

typedef struct appending {
    const kv_batch *kv;
    const gpu_append_record *record;
    const target_call *call;
    const gqac_tensor *rows; /* as they are stored: codes have no data */
    const gqac_tensor *fresh;
    int slot;
    gpu_table table;
    int32_t *lists; /* [3][n]: row of the operand, entry, row of the block; then the table */
    int64_t n;      /* new rows of all sequences */
} appending;

/* Where each new row comes from, counted over [B,H,S], and where it goes. */
static void list_rows(appending *a) {
    const kv_batch *kv = a->kv;
    const int64_t heads = a->rows->dims[1], stride = a->rows->dims[2];
    int32_t *from = a->lists, *entry = from + a->n, *row = entry + a->n;
    for (int64_t b = 0, r = 0; b < kv->n; b++) {
        const int64_t begin = target_kv_begin(kv, b);
        for (int64_t i = 0; i < kv->count[b]; i++, r++) {
            const int64_t position = kv->past[b] + i;
            from[r] = (int32_t)(kv_batch_row(kv, b) * heads * stride + begin + i);
            entry[r] = (int32_t)a->table.at[b * a->table.per + position / GQAC_KV_BLOCK];
            row[r] = (int32_t)(position % GQAC_KV_BLOCK);
        }
    }
}

/* True if new rows lie in that slab. */
static bool has_slab(const appending *a, int slab) {
    const uint32_t *entry = (const uint32_t *)a->lists + a->n;
    for (int64_t r = 0; r < a->n; r++)
        if (entry[r] % GPU_SLABS == (uint32_t)slab)
            return true;
    return false;
}

/* Launches the kernel for the rows of one slab. */
static gqac_status write_slab(gpu_work *w, const appending *a, const append_shape *shape,
                              const gpu_buffer *x, const gpu_buffer *scale, void *slab,
                              const gpu_buffer *copy, const gpu_buffer *lists) {
    const gpu_append_record *r = a->record;
    const size_t width = (size_t)(shape->heads * shape->size);
    const gpu_grid grid = {.groups = {(width + ITEMS - 1) / ITEMS, (size_t)a->n},
                           .items = {ITEMS, 1}};
    const int32_t size = (int32_t)a->fresh->dims[3], bits = r->bits, step = r->per_channel;
    if (r->bits) {
        const gpu_arg args[] = {
            GPU_ARG(x->handle),     GPU_ARG(slab),          GPU_ARG(copy->handle),
            GPU_ARG(lists->handle), GPU_ARG(scale->handle), GPU_ARG(*shape),
            GPU_ARG(size),          GPU_ARG(bits),          GPU_ARG(step)};
        return gpu_launch(w, GPU_APPEND_CODES, &grid, GPU_COUNT(args), args);
    }
    const gpu_arg args[] = {GPU_ARG(x->handle), GPU_ARG(slab), GPU_ARG(copy->handle),
                            GPU_ARG(lists->handle), GPU_ARG(*shape)};
    return gpu_launch(w, gpu_move_kernel(a->rows->dtype, GPU_APPEND, GPU_APPEND_16), &grid,
                      GPU_COUNT(args), args);
}

static gqac_status write_rows(gpu_work *w, appending *a) {
    gpu_blocks *blocks = gpu_state_blocks(w->state);
    const gqac_tensor *rows = a->rows;
    gpu_buffer x, scale, lists, copy;
    const size_t bytes = 3 * (size_t)a->n * sizeof *a->lists;
    size_t copy_at = 0;
    GQAC_TRY((a->record->bits ? gpu_in : gpu_in_as_is)(w, a->fresh, &x));
    GQAC_TRY(gpu_operand_in(w, a->call, &a->record->scale, &scale));
    GQAC_TRY(take(w, a->kv, rows, a->slot, &copy, &copy_at));
    GQAC_TRY(gpu_list_take(w, GPU_LIST_APPEND, bytes, &lists));
    GQAC_TRY(gpu_blocks_place(blocks, a->kv, &a->table, w->work->diag));
    GQAC_TRY(gpu_blocks_fill(blocks, a->kv, a->slot, &a->table, false, w->work->diag));
    list_rows(a);
    GQAC_TRY(gpu_list_write(w, GPU_LIST_APPEND, a->lists, bytes));
    const gpu_slabs slabs = gpu_blocks_slabs(blocks);
    append_shape shape = {.entry_bytes = (int64_t)gpu_blocks_entry_bytes(blocks),
                          .at = (int64_t)gpu_blocks_offset(blocks, a->slot),
                          .copy_at = (int64_t)copy_at,
                          .heads = (int32_t)rows->dims[1],
                          .rows = (int32_t)rows->dims[2],
                          .size = (int32_t)rows->dims[3],
                          .n = (int32_t)a->n};
    for (int i = 0; i < GPU_SLABS; i++) {
        if (!has_slab(a, i))
            continue;
        shape.slab = i;
        shape.entries = slabs.entries[i];
        GQAC_TRY(write_slab(w, a, &shape, &x, &scale, slabs.handles[i], &copy, &lists));
    }
    gpu_blocks_written(blocks, a->kv, a->slot, &a->table);
    return GQAC_OK;
}

/* Rows that the host writes. */
static gqac_status write_on_host(target_call *call, const target_append_record *r) {
    const target_mirror *mirror = &gpu_mirror_functions;
    const gqac_tensor *rows = target_value(call, r->fresh);
    if (rows)
        GQAC_TRY(mirror->fetch(call->mirror, rows, call->work.diag));
    GQAC_TRY(target_kv_append_run(call, r));
    if (!r->only_blocks && r->rows >= 0)
        mirror->changed(call->mirror, target_value(call, r->rows));
    return GQAC_OK;
}

/* The rows that are stored: codes of `fresh`, or `fresh` itself. */
static gqac_status stored_rows(const target_call *call, const gpu_append_record *r,
                               const gqac_tensor *fresh, gqac_tensor *rows) {
    const float *scales;
    *rows = *fresh;
    if (!r->bits)
        return GQAC_OK;
    GQAC_TRY(op_floats(&call->work, fresh, "x", 4));
    rows->dtype = r->bits == 8 ? GQAC_I8 : GQAC_U8;
    rows->dims[3] = r->bits == 8 ? fresh->dims[3] : (fresh->dims[3] + 1) / 2;
    rows->data = NULL;
    return op_code_scales(&call->work, target_value(call, r->scale.value), r->per_channel,
                          fresh->dims[1], fresh->dims[3], &scales);
}

gqac_status gpu_append_run(target_call *call, const void *record) {
    const gpu_append_record *r = record;
    const gqac_tensor *fresh = target_value(call, r->of.fresh);
    const kv_batch *kv = call->kv;
    gqac_tensor rows;
    if (!fresh)
        OP_STOP(&call->work, GQAC_INTERNAL, "kv_append without new rows");
    GQAC_TRY(stored_rows(call, r, fresh, &rows));
    GQAC_TRY(target_kv_fit(call, &call->work, &rows, r->of.slot));
    appending a = {
        .kv = kv, .record = r, .call = call, .rows = &rows, .fresh = fresh, .slot = r->of.slot};
    const int64_t total = target_kv_total_rows(kv);
    for (int b = 0; b < kv->n; b++)
        a.n += kv->count[b];
    /* rows of kind quantised are made on the host, and come to the device as what they stand for */
    if (!r->bits && (!r->of.only_blocks || kv_sequence_has_codes(kv->sequences[0], r->of.slot) ||
                     !gpu_blocks_has_slot(gpu_state_blocks(call->state), r->of.slot) ||
                     !OP_IN(OP_FLOATS, rows.dtype) || gqac_tensor_count(&rows) > INT32_MAX))
        return write_on_host(call, &r->of);
    if (gqac_tensor_count(fresh) > INT32_MAX)
        OP_STOP(&call->work, GQAC_LIMIT, "%lld elements: a kernel of target gpu has %d at most",
                (long long)gqac_tensor_count(fresh), INT32_MAX);
    target_give_token(call, r->of.token);
    target_set(call, r->of.rows,
               &(gqac_tensor){.dtype = rows.dtype,
                              .rank = 4,
                              .dims = {kv->n, rows.dims[1], total, rows.dims[3]}});
    if (a.n == 0)
        return GQAC_OK;
    op_scratch scratch;
    a.table.per = (total + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK;
    const size_t lists = 3 * (size_t)a.n, table = (size_t)(a.table.per * kv->n);
    GQAC_TRY(op_work_scratch_one(&call->work, lists + table, sizeof *a.lists, &scratch));
    a.lists = (int32_t *)(void *)scratch.base;
    a.table.at = (uint32_t *)a.lists + lists;
    gpu_work w = gpu_take(call);
    const gqac_status status = write_rows(&w, &a);
    gpu_give_back(&w);
    op_scratch_close(&scratch);
    return status;
}
