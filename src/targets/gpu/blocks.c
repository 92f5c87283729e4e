/* KV blocks in the memory of a device: see blocks.h. */
#include "targets/gpu/blocks.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "kv/codes.h"

enum { LEAST = 16 /* entries of the first slab */, ALIGNMENT = 64 };

/* Values of `where` that are not entries. */
#define NOWHERE  UINT32_MAX
#define TO_PLACE (UINT32_MAX - 1) /* within gpu_blocks_place */
#define MOST     (UINT32_MAX / GPU_SLABS)

typedef struct entry {
    kv_block_id id; /* of the block whose rows it has; version 0: of none */
    uint64_t used;  /* the last call of gpu_blocks_place that placed it */
    uint32_t at;    /* as a table has it */
    uint8_t least;  /* at least so many rows of every slot are copies */
} entry;

/* A block of the run that has placed its blocks. */
typedef struct place {
    int s; /* sequence */
    int64_t position;
    uint8_t rows, past; /* after the step, and before it */
    uint32_t entry;
} place;

typedef struct places {
    place *all;
    size_t n, capacity;
} places;

typedef struct block_slot {
    size_t row_bytes, offset; /* of all heads; within an entry. 0: kernels do not read the slot */
    size_t scale_bytes;       /* of all heads; 0: rows are not codes */
} block_slot;

struct gpu_blocks {
    const gpu_driver *driver;
    gpu_queue *queue;
    size_t n_slots, slots_capacity;
    block_slot *slots;
    size_t entry_bytes;
    unsigned char *staging; /* the rows of a block in one slot */
    size_t staged;
    int n_slabs;
    gpu_buffer slabs[GPU_SLABS];
    uint32_t sizes[GPU_SLABS], taken, capacity; /* entries of a slab; of all slabs */
    size_t entries_capacity, rows_capacity;
    entry *entries; /* those before `taken` are of a block */
    uint8_t *rows;  /* [capacity][n_slots]: rows that are copies */
    size_t n_where, where_capacity;
    uint32_t *where; /* by number of a block: its entry */
    uint64_t calls, uploaded;
    uint64_t run;  /* whose blocks are placed; 0: of none */
    uint32_t *ats; /* of its blocks, one sequence after another */
    size_t n_ats, ats_capacity;
    places lacking; /* its blocks that lack earlier rows of a slot */
    places fresh;   /* its blocks that get new rows */
};

gpu_blocks *gpu_blocks_open(const gpu_driver *driver, gpu_queue *queue) {
    gpu_blocks *b = gqac_calloc(1, sizeof *b);
    if (b) {
        b->driver = driver;
        b->queue = queue;
    }
    return b;
}

bool gpu_blocks_drop(gpu_blocks *b) {
    const bool some = b->n_slabs > 0;
    while (b->n_slabs > 0)
        b->driver->release(&b->slabs[--b->n_slabs]);
    for (size_t i = 0; i < b->n_where; i++)
        b->where[i] = NOWHERE;
    b->taken = b->capacity = 0;
    b->run = 0;
    b->lacking.n = b->fresh.n = 0;
    return some;
}

void gpu_blocks_close(gpu_blocks *b) {
    if (!b)
        return;
    gpu_blocks_drop(b);
    gqac_free(b->slots);
    gqac_free(b->staging);
    gqac_free(b->entries);
    gqac_free(b->rows);
    gqac_free(b->where);
    gqac_free(b->ats);
    gqac_free(b->lacking.all);
    gqac_free(b->fresh.all);
    gqac_free(b);
}

gqac_status gpu_blocks_add(gpu_blocks *b, int slot, size_t row_bytes, size_t scale_bytes,
                           gqac_diag *diag) {
    const size_t n = (size_t)slot + 1;
    size_t bytes, end;
    assert(b->n_slabs == 0 && row_bytes > 0);
    if (!gqac_reserve(&b->slots, n, &b->slots_capacity, sizeof *b->slots) ||
        !gqac_add_size(row_bytes, scale_bytes, &end) ||
        !gqac_mul_size(GQAC_KV_BLOCK, end, &bytes) ||
        !gqac_reserve(&b->staging, bytes, &b->staged, 1) ||
        !gqac_add_size(b->entry_bytes, bytes + ALIGNMENT - 1, &end))
        return gqac_diag_oom(diag, "KV blocks of a device");
    for (; b->n_slots < n; b->n_slots++)
        b->slots[b->n_slots] = (block_slot){0};
    if (b->slots[slot].row_bytes == 0) {
        b->slots[slot] = (block_slot){
            .row_bytes = row_bytes, .offset = b->entry_bytes, .scale_bytes = scale_bytes};
        b->entry_bytes = end / ALIGNMENT * ALIGNMENT;
    }
    assert(b->slots[slot].row_bytes == row_bytes && b->slots[slot].scale_bytes == scale_bytes);
    return GQAC_OK;
}

bool gpu_blocks_has_slot(const gpu_blocks *b, int slot) {
    return (size_t)slot < b->n_slots && b->slots[slot].row_bytes > 0;
}

/* ---- slabs -------------------------------------------------------------------- */

/* Adds a slab of n entries. */
static gqac_status add_slab(gpu_blocks *b, uint32_t n, gqac_diag *diag) {
    static const unsigned char zeros[4];
    const uint32_t capacity = b->capacity + n;
    gpu_buffer *slab = &b->slabs[b->n_slabs];
    size_t bytes, cells;
    if (!gqac_mul_size(n, b->entry_bytes, &bytes) || !gqac_mul_size(capacity, b->n_slots, &cells) ||
        !gqac_reserve(&b->rows, cells, &b->rows_capacity, sizeof *b->rows) ||
        !gqac_reserve(&b->entries, capacity, &b->entries_capacity, sizeof *b->entries))
        return gqac_diag_oom(diag, "KV blocks of a device");
    gqac_status status = b->driver->allocate(b->queue, bytes, slab, diag);
    if (status == GQAC_OK) /* a driver may take memory at the first use */
        status = b->driver->write(b->queue, slab, bytes - sizeof zeros, zeros, sizeof zeros, diag);
    if (status != GQAC_OK) {
        b->driver->release(slab);
        return status;
    }
    for (uint32_t i = 0; i < n; i++)
        b->entries[b->capacity + i] = (entry){.at = i * GPU_SLABS + (uint32_t)b->n_slabs};
    memset(b->rows + b->capacity * b->n_slots, 0, n * b->n_slots);
    b->sizes[b->n_slabs++] = n;
    b->capacity = capacity;
    return GQAC_OK;
}

/* Adds entries, as many as there are already or, if the device has less memory, what it has, until
 * `n` are free. */
static gqac_status grow(gpu_blocks *b, size_t n, gqac_diag *diag) {
    gqac_status status = GQAC_OK;
    while (status == GQAC_OK && n > b->capacity - b->taken) {
        size_t more = b->capacity > LEAST ? b->capacity : LEAST;
        more = more > n ? more : n;
        more = more < MOST - b->capacity ? more : MOST - b->capacity;
        if (b->n_slabs == GPU_SLABS || more == 0)
            GQAC_FAIL(diag, GQAC_NO_MEMORY, "no more than %u KV blocks fit on the device",
                      b->capacity);
        do {
            status = add_slab(b, (uint32_t)more, diag);
        } while (status == GQAC_NO_MEMORY && (more /= 2) > 0);
    }
    return status;
}

/* ---- entries ------------------------------------------------------------------- */

/* The blocks of a step, one after another. */
typedef struct walk {
    const kv_batch *kv;
    int s;                        /* sequence */
    int64_t position, rows, past; /* of the block: rows, those before the step */
    kv_block_id id;
} walk;

static walk begin(const kv_batch *kv) {
    return (walk){.kv = kv, .s = 0, .position = -GQAC_KV_BLOCK};
}

/* Moves to the next block; false: there is none. */
static bool next(walk *w) {
    const kv_batch *kv = w->kv;
    w->position += GQAC_KV_BLOCK;
    while (w->s < kv->n && w->position >= kv->past[w->s] + kv->count[w->s]) {
        w->s++;
        w->position = 0;
    }
    if (w->s == kv->n)
        return false;
    const int64_t left = kv->past[w->s] + kv->count[w->s] - w->position;
    w->rows = left < GQAC_KV_BLOCK ? left : GQAC_KV_BLOCK;
    w->past = kv->past[w->s] - w->position;
    w->past = w->past < 0 ? 0 : w->past < w->rows ? w->past : w->rows;
    w->id = kv_block_identity(kv->sequences[w->s], w->position);
    return true;
}

/* Marks the entries of a step as used, and blocks without one as to be placed; *lacking: their
 * number. Takes memory for the places of all blocks. */
static gqac_status mark(gpu_blocks *b, walk w, size_t *lacking, gqac_diag *diag) {
    size_t n = 0;
    *lacking = 0;
    while (next(&w)) {
        n++;
        if (!gqac_reserve(&b->where, w.id.number + 1, &b->where_capacity, sizeof *b->where))
            return gqac_diag_oom(diag, "KV blocks of a device");
        while (b->n_where <= w.id.number)
            b->where[b->n_where++] = NOWHERE;
        uint32_t *where = &b->where[w.id.number];
        *lacking += *where == NOWHERE;
        if (*where == NOWHERE)
            *where = TO_PLACE;
        else if (*where != TO_PLACE)
            b->entries[*where].used = b->calls;
    }
    if (!gqac_reserve(&b->ats, n, &b->ats_capacity, sizeof *b->ats) ||
        !gqac_reserve(&b->lacking.all, n, &b->lacking.capacity, sizeof *b->lacking.all) ||
        !gqac_reserve(&b->fresh.all, n, &b->fresh.capacity, sizeof *b->fresh.all))
        return gqac_diag_oom(diag, "KV blocks of a device");
    return GQAC_OK;
}

static void unmark(gpu_blocks *b, walk w) {
    while (next(&w))
        if (w.id.number < b->n_where && b->where[w.id.number] == TO_PLACE)
            b->where[w.id.number] = NOWHERE;
}

/* An entry for a new block: a fresh one, or the least recently used one. NOWHERE: this step uses
 * all. */
static uint32_t take_entry(gpu_blocks *b) {
    uint32_t oldest = NOWHERE;
    if (b->taken < b->capacity)
        return b->taken++;
    for (uint32_t i = 0; i < b->capacity; i++)
        if (b->entries[i].used < b->calls &&
            (oldest == NOWHERE || b->entries[i].used < b->entries[oldest].used))
            oldest = i;
    if (oldest != NOWHERE)
        b->where[b->entries[oldest].id.number] = NOWHERE;
    return oldest;
}

/* The number of rows of a slot that an entry has. */
static uint8_t *rows_of(const gpu_blocks *b, uint32_t entry, int slot) {
    return &b->rows[entry * b->n_slots + (size_t)slot];
}

/* Of all slots that kernels read, the least. */
static uint8_t least_rows(const gpu_blocks *b, uint32_t entry) {
    uint8_t least = GQAC_KV_BLOCK;
    for (size_t slot = 0; slot < b->n_slots; slot++) {
        const uint8_t rows = *rows_of(b, entry, (int)slot);
        least = b->slots[slot].row_bytes > 0 && rows < least ? rows : least;
    }
    return least;
}

/* Leaves the first `kept` rows of an entry as copies. */
static void keep_rows(gpu_blocks *b, uint32_t entry, uint8_t kept) {
    uint8_t *least = &b->entries[entry].least;
    for (size_t slot = 0; slot < b->n_slots; slot++) {
        uint8_t *rows = rows_of(b, entry, (int)slot);
        *rows = *rows < kept ? *rows : kept;
    }
    *least = *least < kept ? *least : kept;
}

/* Gives a block an entry; false: there are too few. */
static bool assign_one(gpu_blocks *b, const walk *w) {
    uint32_t *where = &b->where[w->id.number];
    const uint32_t i = *where == TO_PLACE ? take_entry(b) : *where;
    if (i == NOWHERE)
        return false;
    entry *e = &b->entries[i];
#ifdef GQAC_CONTROL_GPU_STALE_BLOCKS /* negative control: rows of an earlier version are kept */
    const bool same = e->id.version > 0 && e->id.number == w->id.number;
#else
    const bool same = e->id.version == w->id.version;
#endif
    const bool previous = w->id.before > 0 && e->id.version == w->id.before;
    if (!same)
        keep_rows(b, i, previous ? (uint8_t)w->id.kept : 0);
    e->id = w->id;
    e->used = b->calls;
    *where = i;
    const place at = {.s = w->s,
                      .position = w->position,
                      .rows = (uint8_t)w->rows,
                      .past = (uint8_t)w->past,
                      .entry = i};
    b->ats[b->n_ats++] = e->at;
    if (e->least < at.past)
        e->least = least_rows(b, i);
    if (e->least < at.past)
        b->lacking.all[b->lacking.n++] = at;
    if (at.past < at.rows)
        b->fresh.all[b->fresh.n++] = at;
    return true;
}

/* Gives each block an entry; false: there are too few. */
static bool assign(gpu_blocks *b, walk w) {
    b->n_ats = b->lacking.n = b->fresh.n = 0;
    while (next(&w))
        if (!assign_one(b, &w))
            return false;
    return true;
}

static gqac_status place_all(gpu_blocks *b, const kv_batch *kv, gqac_diag *diag) {
    size_t lacking;
    b->calls++;
    gqac_status status = mark(b, begin(kv), &lacking, diag);
    if (status == GQAC_OK) {
        status = grow(b, lacking, diag);
        if (assign(b, begin(kv))) /* it replaces what others use where growing has failed */
            return GQAC_OK;
    }
    unmark(b, begin(kv));
    return status;
}

gqac_status gpu_blocks_place(gpu_blocks *b, const kv_batch *kv, uint64_t run,
                             const gpu_table *table, gqac_diag *diag) {
    if (b->run != run) {
        b->run = 0;
        GQAC_TRY(place_all(b, kv, diag));
        b->run = run;
    }
    const uint32_t *from = b->ats;
    for (int s = 0; s < kv->n; s++) {
        const int64_t n = (kv->past[s] + kv->count[s] + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK;
        if (n > 0) /* a table without sequences may be NULL */
            memcpy(table->at + s * table->per, from, (size_t)n * sizeof *from);
        from += n;
    }
    return GQAC_OK;
}

/* ---- rows ---------------------------------------------------------------------- */

/* Copies bytes to the device, from byte `at` of an entry on. */
static gqac_status write_entry(gpu_blocks *b, uint32_t entry, size_t at, const void *from,
                               size_t bytes, gqac_diag *diag) {
    const uint32_t where = b->entries[entry].at;
    b->uploaded += bytes;
    return b->driver->write(b->queue, &b->slabs[where % GPU_SLABS],
                            where / GPU_SLABS * b->entry_bytes + at, from, bytes, diag);
}

/* Uploads the rows [first, end) of a slot. */
static gqac_status upload(gpu_blocks *b, const kv_batch *kv, const place *p, int slot,
                          int64_t first, int64_t end, gqac_diag *diag) {
    const block_slot *s = &b->slots[slot];
    const kv_sequence *sequence = kv->sequences[p->s];
    const int64_t heads = kv_sequence_slot(sequence, slot)->heads;
    const size_t row = s->row_bytes, head = row / (size_t)heads, n = (size_t)(end - first);
    unsigned char *to = b->staging;
    float *scale = (float *)(void *)(b->staging + GQAC_KV_BLOCK * row);
    for (int64_t i = first; i < end; i++)
        for (int64_t h = 0; h < heads; h++, to += head)
            if (s->scale_bytes)
                kv_read_codes(sequence, slot, h, p->position + i, 1, to, scale++);
            else
                kv_read_head(sequence, slot, h, p->position + i, 1, to);
    GQAC_TRY(write_entry(b, p->entry, s->offset + (size_t)first * row, b->staging, n * row, diag));
    if (s->scale_bytes == 0)
        return GQAC_OK;
    return write_entry(b, p->entry, gpu_blocks_scales_at(b, slot) + (size_t)first * s->scale_bytes,
                       b->staging + GQAC_KV_BLOCK * row, n * s->scale_bytes, diag);
}

/* Uploads the rows of a slot that blocks lack, up to those before or after the step. */
static gqac_status fill(gpu_blocks *b, const kv_batch *kv, int slot, const places *of,
                        bool with_new, gqac_diag *diag) {
    for (size_t i = 0; i < of->n; i++) {
        const place *p = &of->all[i];
        uint8_t *rows = rows_of(b, p->entry, slot);
        const uint8_t end = with_new ? p->rows : p->past;
        if (*rows >= end)
            continue;
        GQAC_TRY(upload(b, kv, p, slot, *rows, end, diag));
        *rows = end;
    }
    return GQAC_OK;
}

gqac_status gpu_blocks_fill(gpu_blocks *b, const kv_batch *kv, int slot, bool with_new,
                            gqac_diag *diag) {
    GQAC_TRY(fill(b, kv, slot, &b->lacking, false, diag));
    return with_new ? fill(b, kv, slot, &b->fresh, true, diag) : GQAC_OK;
}

bool gpu_blocks_has_new(const gpu_blocks *b, int slot) {
    for (size_t i = 0; i < b->fresh.n; i++)
        if (*rows_of(b, b->fresh.all[i].entry, slot) < b->fresh.all[i].rows)
            return false;
    return true;
}

void gpu_blocks_written(gpu_blocks *b, int slot) {
    for (size_t i = 0; i < b->fresh.n; i++)
        *rows_of(b, b->fresh.all[i].entry, slot) = b->fresh.all[i].rows;
}

/* ---- what kernels read ----------------------------------------------------------- */

gpu_slabs gpu_blocks_slabs(const gpu_blocks *b) {
    gpu_slabs all;
    for (int i = 0; i < GPU_SLABS; i++) {
        const int slab = i < b->n_slabs ? i : 0;
        all.handles[i] = b->slabs[slab].handle;
        all.entries[i] = (int32_t)b->sizes[slab];
    }
    return all;
}

size_t gpu_blocks_entry_bytes(const gpu_blocks *b) {
    return b->entry_bytes;
}

size_t gpu_blocks_bytes(const gpu_blocks *b, size_t n) {
    size_t capacity = b->entry_bytes ? LEAST : 0, bytes;
    while (capacity && capacity < n && capacity < MOST)
        capacity *= 2;
    return gqac_mul_size(capacity, b->entry_bytes, &bytes) ? bytes : SIZE_MAX;
}

size_t gpu_blocks_offset(const gpu_blocks *b, int slot) {
    return b->slots[slot].offset;
}

size_t gpu_blocks_scales_at(const gpu_blocks *b, int slot) {
    const block_slot *s = &b->slots[slot];
    return s->scale_bytes ? s->offset + GQAC_KV_BLOCK * s->row_bytes : 0;
}

uint64_t gpu_blocks_uploaded(const gpu_blocks *b) {
    return b->uploaded;
}
