/* The mirror: a table of copies by the address of the value on the host. Every run begins without
 * copies, because inputs and the memory of values change between runs; the memory of the device
 * stays. The state's lock is held while the device is used. */
#include "targets/gpu/mirror.h"

#include <stdatomic.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/table.h"
#include "targets/gpu/order.h"
#include "targets/gpu/rows.h"

enum { MOST_COPIES = 1 << 14 }; /* with more of them all are forgotten: memory has moved */

typedef struct copy {
    struct copy *next;
    const void *host;
    gpu_buffer buffer;
    size_t bytes; /* of the value */
    bool on_device, on_host;
    uint64_t run; /* the last one that used it */
} copy;

typedef struct mirror {
    gpu_state *state;
    gqac_table table; /* of copies, by address */
    copy *first;
    uint64_t run;    /* counts those of this mirror */
    uint64_t number; /* of the run in the process */
    uint64_t losses; /* of the state, when the run began */
    size_t count;
    target_copies copies;
    gpu_new_rows *new_rows;
} mirror;

/* ---- copies ------------------------------------------------------------------- */

static bool is_of(const void *item, const void *host) {
    return ((const copy *)item)->host == host;
}

static uint64_t hash_of(const void *host) {
    return gqac_hash_u64(0, (uint64_t)(uintptr_t)host);
}

static copy *find(const mirror *m, const gqac_tensor *value) {
    if (!OP_IN(OP_FLOATS, value->dtype) || !value->data)
        return NULL;
    return gqac_table_find(&m->table, hash_of(value->data), is_of, value->data);
}

/* The copy of a value; a new one has its bytes on the host only. NULL: memory is short. */
static copy *obtain(const gpu_work *w, const gqac_tensor *value) {
    mirror *m = w->mirror;
    copy *c = find(m, value);
    if (!c) {
        c = gqac_calloc(1, sizeof *c);
        if (!c || !gqac_table_add(&m->table, hash_of(value->data), c)) {
            gqac_free(c);
            (void)gqac_diag_oom(w->work->diag, "values on a device");
            return NULL;
        }
        *c = (copy){.next = m->first, .host = value->data, .on_host = true};
        m->first = c;
        m->count++;
    }
    c->run = m->run;
    return c;
}

static void forget_all(mirror *m) {
    while (m->first) {
        copy *next = m->first->next;
        gpu_release(m->state, &m->first->buffer);
        gqac_free(m->first);
        m->first = next;
    }
    gqac_table_free(&m->table);
    m->count = 0;
}

/* ---- for kernels -------------------------------------------------------------- */

static gqac_status resize(gpu_work *w, copy *c, size_t bytes) {
    if (c->buffer.handle && c->buffer.bytes >= bytes)
        return GQAC_OK;
    c->on_device = false;
    gpu_release(w->state, &c->buffer);
    return gpu_allocate(w->state, bytes, &c->buffer, w->work->diag);
}

static gqac_status download(mirror *m, copy *c, gqac_diag *diag) {
    GQAC_TRY(gpu_download(m->state, &c->buffer, (void *)(uintptr_t)c->host, c->bytes, diag));
    GQAC_TRY(gpu_check_losses(m->state, m->losses, diag));
    m->copies.down++;
    m->copies.down_bytes += (int64_t)c->bytes;
    c->on_host = true;
    return GQAC_OK;
}

gqac_status gpu_mirror_in(gpu_work *w, const gqac_tensor *value, gpu_buffer *buffer) {
    mirror *m = w->mirror;
    const size_t bytes = gqac_tensor_bytes(value);
    copy *c = obtain(w, value);
    if (!c)
        return GQAC_NO_MEMORY;
    if (!c->on_device || c->bytes != bytes) {
        if (!c->on_host) /* another value, of which this one is a part */
            GQAC_TRY(download(m, c, w->work->diag));
        GQAC_TRY(resize(w, c, bytes));
        GQAC_TRY(gpu_upload(w->state, &c->buffer, value->data, bytes, w->work->diag));
        m->copies.up++;
        m->copies.up_bytes += (int64_t)bytes;
        c->bytes = bytes;
        c->on_device = true;
    }
    *buffer = c->buffer;
    return GQAC_OK;
}

gqac_status gpu_mirror_out(gpu_work *w, const gqac_tensor *value, gpu_buffer *buffer) {
    copy *c = obtain(w, value);
    if (!c)
        return GQAC_NO_MEMORY;
    GQAC_TRY(resize(w, c, gqac_tensor_bytes(value)));
    c->bytes = gqac_tensor_bytes(value);
    c->on_device = true;
    c->on_host = false;
    *buffer = c->buffer;
    return GQAC_OK;
}

gpu_new_rows *gpu_mirror_new_rows(const gpu_work *w) {
    const mirror *m = w->mirror;
    return m->new_rows;
}

uint64_t gpu_mirror_run(const gpu_work *w) {
    const mirror *m = w->mirror;
    return m->number;
}

/* ---- for the executor --------------------------------------------------------- */

static gqac_status open_mirror(const void *state, void **result, gqac_diag *diag) {
    mirror *m = gqac_calloc(1, sizeof *m);
    if (!m)
        return gqac_diag_oom(diag, "values on a device");
    m->state = gpu_state_of(state);
    m->new_rows = gpu_new_rows_open(m->state, &m->copies);
    if (!m->new_rows) {
        gqac_free(m);
        return gqac_diag_oom(diag, "values on a device");
    }
    *result = m;
    return GQAC_OK;
}

static void close_mirror(void *arg) {
    mirror *m = arg;
    gpu_lock(m->state);
    forget_all(m);
    gpu_new_rows_close(m->new_rows);
    gpu_unlock(m->state);
    gqac_free(m);
}

/* Memory that the last run did not use is released: it belonged to other sizes. */
static void begin(void *arg) {
    static atomic_uint_fast64_t runs;
    mirror *m = arg;
    gpu_lock(m->state);
    m->run++;
    m->number = atomic_fetch_add(&runs, 1) + 1;
    if (m->count > MOST_COPIES)
        forget_all(m);
    for (copy *c = m->first; c; c = c->next) {
        c->on_device = false;
        c->on_host = true;
        if (c->run + 1 < m->run)
            gpu_release(m->state, &c->buffer);
    }
    m->losses = gpu_losses(m->state);
    gpu_unlock(m->state);
    gpu_new_rows_forget(m->new_rows);
    m->copies = (target_copies){0};
}

static gqac_status fetch(void *arg, const gqac_tensor *value, gqac_diag *diag) {
    mirror *m = arg;
    copy *c = find(m, value);
    if (!c || c->on_host)
        return GQAC_OK;
    gpu_lock(m->state);
    const gqac_status status = download(m, c, diag);
    gpu_unlock(m->state);
    return status;
}

static void changed(void *arg, const gqac_tensor *value) {
    const mirror *m = arg;
    copy *c = find(m, value);
    if (!c)
        return;
    c->on_host = true;
#ifndef GQAC_CONTROL_GPU_STALE_COPY /* negative control: the device keeps what it had */
    c->on_device = false;
#endif
}

static bool holds(const void *arg, const gqac_tensor *value) {
    const mirror *m = arg;
    const copy *c = find(m, value);
    return c && c->on_device;
}

static gqac_status move(void *arg, const op_box *box, const op_work *work) {
    mirror *m = arg;
    gpu_work w = {.state = m->state, .mirror = m, .work = work};
    gpu_lock(m->state);
    const gqac_status status = gpu_copy_box(&w, box);
    gpu_unlock(m->state);
    return status;
}

static gqac_status top(void *arg, const gqac_tensor *logits, int64_t n, gqac_candidate *ids,
                       const op_work *work) {
    mirror *m = arg;
    gpu_work w = {.state = m->state, .mirror = m, .work = work};
    gpu_lock(m->state);
    gqac_status status = gpu_top_ids(&w, logits, n, ids);
    if (status == GQAC_OK)
        status = gpu_check_losses(m->state, m->losses, work->diag);
    gpu_unlock(m->state);
    return status;
}

static gqac_status finish(void *arg, const op_work *work) {
    mirror *m = arg;
    gpu_lock(m->state);
    gqac_status status = gpu_new_rows_fetch(m->new_rows, work->diag);
    if (status == GQAC_OK)
        status = gpu_check_losses(m->state, m->losses, work->diag);
    gpu_unlock(m->state);
    if (status == GQAC_OK)
        gpu_new_rows_write(m->new_rows, work);
    return status;
}

static target_copies copies(const void *arg) {
    const mirror *m = arg;
    return m->copies;
}

const target_mirror gpu_mirror_functions = {.open = open_mirror,
                                            .close = close_mirror,
                                            .begin = begin,
                                            .fetch = fetch,
                                            .changed = changed,
                                            .holds = holds,
                                            .move = move,
                                            .top = top,
                                            .finish = finish,
                                            .copies = copies};
