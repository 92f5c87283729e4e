/* New rows on the device, and their way to the host: see append.h. */
#include "targets/gpu/append.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "ops/visible.h"
#include "targets/gpu/mirror.h"

enum {
    ALIGNMENT = 4,
    MOST = 64 << 20 /* bytes of the buffer, unless one slot needs more */
};

/* ---- the rows that the host lacks ---------------------------------------------- */

struct gpu_new_rows {
    gpu_state *state;
    target_copies *copies;
    gpu_buffer buffer;
    size_t used;
    unsigned char *staging; /* the buffer, on the host */
    size_t staged;
    const kv_batch *kv; /* of the run */
    gpu_new *list;
    size_t n, capacity;
    gqac_candidate *top; /* of the likeliest ids that the buffer has from byte top_at on */
    size_t n_top, top_at;
};

/* One of these, as the kernel writes it. */
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
    gqac_free(r->staging);
    gqac_free(r->list);
    gqac_free(r);
}

void gpu_new_rows_forget(gpu_new_rows *r) {
    r->used = r->n = r->n_top = 0;
}

static void give_top(const gpu_new_rows *r) {
    for (size_t i = 0; i < r->n_top; i++) {
        id_pair pair;
        memcpy(&pair, r->staging + r->top_at + i * sizeof pair, sizeof pair);
        r->top[i] = (gqac_candidate){.id = isnan(pair.logit) ? -1 : pair.id, .logit = pair.logit};
    }
}

gqac_status gpu_new_rows_flush(gpu_new_rows *r, gqac_diag *diag) {
    if (r->n + r->n_top == 0)
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
    give_top(r);
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

/* Makes room for more bytes, by a flush if need be; a new buffer has at least `all`. */
static gqac_status make_room(gpu_work *w, gpu_new_rows *r, size_t bytes, size_t all) {
    if (r->used + bytes <= r->buffer.bytes)
        return GQAC_OK;
    GQAC_TRY(gpu_new_rows_flush(r, w->work->diag));
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
        bytes += aligned(gqac_tensor_bytes(rows));
        most = count > most ? count : most;
    }
    GQAC_TRY(make_room(w, r, bytes, gpu_new_rows_bytes(gpu_state_blocks(w->state), most)));
    if (!gqac_reserve(&r->list, r->n + (size_t)n, &r->capacity, sizeof *r->list))
        return gqac_diag_oom(w->work->diag, "new rows of a device");
    *buffer = r->buffer;
    r->kv = kv;
    for (int i = 0; i < n; i++) {
        slots[i].at = r->used;
        r->used += aligned(gqac_tensor_bytes(&slots[i].rows));
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

gqac_status gpu_bring_rows(gpu_work *w, const kv_batch *kv, int slot, const gpu_table *table) {
    gpu_blocks *blocks = gpu_state_blocks(w->state);
    if (!gpu_blocks_has_new(blocks, kv, slot, table)) /* replaced since they were written */
        GQAC_TRY(gpu_new_rows_flush(gpu_mirror_new_rows(w), w->work->diag));
    return gpu_blocks_fill(blocks, kv, slot, table, true, w->work->diag);
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
