/* New rows on the device, and their way to the host: see append.h. */
#include "targets/gpu/append.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "kv/codes.h"
#include "ops/visible.h"
#include "targets/gpu/mirror.h"

enum {
    ALIGNMENT = 4,
    MOST = 64 << 20, /* bytes of the buffer, unless one slot needs more */
    PARTS = 8,       /* of the rows of a slot; threads write different ones to the host */
    BYTES_NS = 4     /* bytes that a thread writes in 1 ns */
};

/* ---- the rows that the host lacks ---------------------------------------------- */

struct gpu_new_rows {
    gpu_state *state;
    target_copies *copies;
    gpu_buffer buffer;
    size_t used;
    gpu_host staging;   /* the buffer, on the host */
    const kv_batch *kv; /* of the run */
    gpu_new *list;
    size_t n, capacity;
    gqac_candidate *top; /* of the likeliest ids that the buffer has from byte top_at on */
    size_t n_top, top_at;
};

/* One of the likeliest ids, as the kernel writes it. */
typedef struct id_pair {
    float logit;
    int32_t id;
} id_pair;

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
    gpu_host_release(r->state, &r->staging);
    gqac_free(r->list);
    gqac_free(r);
}

void gpu_new_rows_forget(gpu_new_rows *r) {
    r->used = r->n = r->n_top = 0;
}

static void give_top(const gpu_new_rows *r) {
    for (size_t i = 0; i < r->n_top; i++) {
        id_pair pair;
        memcpy(&pair, r->staging.data + r->top_at + i * sizeof pair, sizeof pair);
        r->top[i] = (gqac_candidate){.id = isnan(pair.logit) ? -1 : pair.id, .logit = pair.logit};
    }
}

/* Writes the codes or rows [first, first + n) of the new ones of sequence b, as they are. */
static void write_range(const gpu_new_rows *r, const gpu_new *of, int b, int64_t first, int64_t n) {
    const int64_t heads = of->rows.dims[1], rows = of->rows.dims[2], width = of->rows.dims[3];
    const int64_t own = target_kv_begin(r->kv, b) + first, past = r->kv->past[b] + first;
    const int64_t of_batch = kv_batch_row(r->kv, b) * heads;
    const unsigned char *from = r->staging.data + of->at;
    kv_sequence *sequence = r->kv->sequences[b];
    if (of->bits == 0) {
        const size_t at = (size_t)(of_batch * rows + own) * (size_t)width;
        kv_write_rows(sequence, of->slot, past, n, from + at * op_width(of->rows.dtype), rows);
        return;
    }
    const float *scales = (const float *)(const void *)(r->staging.data + of->scales_at);
    for (int64_t h = 0; h < heads; h++) {
        const int64_t at = (of_batch + h) * rows + own;
        kv_write_codes(sequence, of->slot, h, past, n, from + at * kv_code_bytes(width, of->bits),
                       scales + at);
    }
}

/* Writes parts of the list to the host: PARTS of each slot. */
static void write_parts(void *arg, size_t begin, size_t end, int worker) {
    const gpu_new_rows *r = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        const int64_t part = (int64_t)(i % PARTS);
        for (int b = 0; b < r->kv->n; b++) {
            const int64_t first = r->kv->count[b] * part / PARTS;
            const int64_t last = r->kv->count[b] * (part + 1) / PARTS;
            if (first < last)
                write_range(r, &r->list[i / PARTS], b, first, last - first);
        }
    }
}

gqac_status gpu_new_rows_fetch(gpu_new_rows *r, gqac_diag *diag) {
    if (r->n + r->n_top == 0)
        return GQAC_OK;
    GQAC_TRY(gpu_host_reserve(r->state, r->used, &r->staging, diag));
    GQAC_TRY(gpu_download(r->state, &r->buffer, r->staging.data, r->used, diag));
    r->copies->down++;
    r->copies->down_bytes += (int64_t)r->used;
    give_top(r);
    return GQAC_OK;
}

void gpu_new_rows_write(gpu_new_rows *r, const op_work *work) {
    const int64_t parts = (int64_t)r->n * PARTS;
    if (parts > 0)
        op_work_parallel(work, parts, (int64_t)r->used / parts / BYTES_NS, write_parts, r);
    gpu_new_rows_forget(r);
}

/* Writes all rows to the host on this thread: others wait for the device. */
static gqac_status flush(gpu_new_rows *r, gqac_diag *diag) {
    GQAC_TRY(gpu_new_rows_fetch(r, diag));
    gpu_new_rows_write(r, &(op_work){.diag = diag});
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

/* Sets where the rows of a slot lie from byte `at` of the buffer on; returns where they end. */
static size_t lay_out(gpu_new *of, size_t at) {
    const int64_t *dims = of->rows.dims;
    const size_t n = (size_t)(dims[0] * dims[1] * dims[2]);
    of->at = at;
    if (of->bits == 0)
        return at + aligned(gqac_tensor_bytes(&of->rows));
    of->scales_at = at + aligned(n * (size_t)kv_code_bytes(dims[3], of->bits));
    return of->scales_at + n * sizeof(float);
}

/* Makes room for more bytes, by a flush if need be; a new buffer has at least `all`. */
static gqac_status make_room(gpu_work *w, gpu_new_rows *r, size_t bytes, size_t all) {
    if (r->used + bytes <= r->buffer.bytes)
        return GQAC_OK;
    GQAC_TRY(flush(r, w->work->diag));
    if (r->buffer.bytes >= bytes && r->buffer.bytes >= all)
        return GQAC_OK;
    gpu_release(w->state, &r->buffer);
    return gpu_allocate(w->state, all > bytes ? all : bytes, &r->buffer, w->work->diag);
}

gqac_status gpu_new_rows_take(gpu_work *w, const kv_batch *kv, int n, gpu_new *slots,
                              gpu_buffer *buffer) {
    gpu_new_rows *r = gpu_mirror_new_rows(w);
    size_t bytes = 0, most = 0;
    for (int i = 0; i < n; i++) {
        const gqac_tensor *rows = &slots[i].rows;
        const size_t count = (size_t)(rows->dims[0] * rows->dims[2]);
        bytes = lay_out(&slots[i], bytes);
        most = count > most ? count : most;
    }
    GQAC_TRY(make_room(w, r, bytes, gpu_new_rows_bytes(gpu_blocks_of(w->state, kv), most)));
    if (!gqac_reserve(&r->list, r->n + (size_t)n, &r->capacity, sizeof *r->list))
        return gqac_diag_oom(w->work->diag, "new rows of a device");
    *buffer = r->buffer;
    r->kv = kv;
    for (int i = 0; i < n; i++) {
        r->used = lay_out(&slots[i], r->used);
        r->list[r->n++] = slots[i];
    }
    return GQAC_OK;
}

gqac_status gpu_new_rows_take_top(gpu_work *w, size_t n, gqac_candidate *ids, gpu_buffer *buffer,
                                  int64_t *at) {
    gpu_new_rows *r = gpu_mirror_new_rows(w);
    const size_t bytes = n * sizeof(id_pair), all = r->used + bytes;
    GQAC_TRY(make_room(w, r, bytes, all < MOST ? all : bytes));
    r->top = ids;
    r->n_top = n;
    r->top_at = r->used;
    r->used += bytes;
    *buffer = r->buffer;
    *at = (int64_t)r->top_at;
    return GQAC_OK;
}

gpu_blocks *gpu_blocks_of(const void *state, const kv_batch *kv) {
    return gpu_state_blocks(state, kv_sequence_kind_bits(kv->sequences[0]));
}

gqac_status gpu_place(gpu_work *w, const kv_batch *kv, const gpu_table *table) {
    gpu_blocks *own = gpu_blocks_of(w->state, kv);
    const uint64_t run = gpu_mirror_run(w);
    gqac_status status = gpu_blocks_place(own, kv, run, table, w->work->diag);
    if (status == GQAC_NO_MEMORY && gpu_drop_spare(w->state))
        status = gpu_blocks_place(own, kv, run, table, w->work->diag);
    for (int bits = 0; bits <= 8 && status == GQAC_NO_MEMORY; bits += 4) {
        gpu_blocks *other = gpu_state_blocks(w->state, bits);
        if (other != own && gpu_blocks_drop(other))
            status = gpu_blocks_place(own, kv, run, table, w->work->diag);
    }
    return status;
}

gqac_status gpu_bring_rows(gpu_work *w, const kv_batch *kv, int slot) {
    gpu_blocks *blocks = gpu_blocks_of(w->state, kv);
    if (!gpu_blocks_has_new(blocks, slot)) /* replaced since they were written */
        GQAC_TRY(flush(gpu_mirror_new_rows(w), w->work->diag));
    return gpu_blocks_fill(blocks, kv, slot, true, w->work->diag);
}

/* ---- rows that the host writes ---------------------------------------------------- */

gqac_status gpu_append_run(target_call *call, const void *record) {
    const target_append_record *r = record;
    const target_mirror *mirror = &gpu_mirror_functions;
    const gqac_tensor *rows = target_value(call, r->fresh);
    if (rows)
        GQAC_TRY(mirror->fetch(call->mirror, rows, call->work.diag));
    GQAC_TRY(target_kv_append_run(call, r));
    if (!r->only_blocks && r->rows >= 0)
        mirror->changed(call->mirror, target_value(call, r->rows));
    return GQAC_OK;
}
