/* The pool: the sizes of blocks, and reference counts.
 *
 * After the pool is created only counters change, so that sequences of one pool may run on
 * different threads. Unwritten rows are NaN bytes, so a kernel that reads rows after the length
 * gets NaN in its results. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "kv/budget.h"
#include "kv/kv_impl.h"
#include "kv/slabs.h"

enum { ALIGNMENT = 64 };

/* The numbers of blocks. `released` has capacity for all numbers that were taken, so that releasing
 * a block never allocates. */
typedef struct numbers {
    pthread_mutex_t lock;
    size_t taken; /* 0..taken-1 belong to blocks, or are in `released` */
    size_t *released, n_released, capacity;
} numbers;

enum { NOWHERE = -1 };

struct kv_pool {
    int n_slots;
    kv_slot *slots;
    ptrdiff_t *offsets; /* of each state slot in a state, of each slot with a tail among these, */
    ptrdiff_t *at[KV_PARTS]; /* of each other slot in a block of that part; NOWHERE: not there */
    size_t bytes[KV_PARTS], tail_bytes, state_bytes;
    int64_t tail, window; /* the largest of all slots */
    bool has_codes;
    kv_slabs blocks[KV_PARTS], tails, states;
    numbers numbers;
    atomic_uint_fast64_t versions; /* the latest version of any block */
};

static bool take_number(numbers *n, size_t *number) {
    pthread_mutex_lock(&n->lock);
    const bool took = n->n_released > 0 ||
                      gqac_reserve(&n->released, n->taken + 1, &n->capacity, sizeof *n->released);
    if (took)
        *number = n->n_released > 0 ? n->released[--n->n_released] : n->taken++;
    pthread_mutex_unlock(&n->lock);
    return took;
}

static void release_number(numbers *n, size_t number) {
    pthread_mutex_lock(&n->lock);
    n->released[n->n_released++] = number;
    pthread_mutex_unlock(&n->lock);
}

/* True if a slot that is not a state and has no tail is in the part. */
static bool is_in(const kv_slot *slot, kv_part part) {
    return part == KV_WINDOW ? slot->window > 0 : part != KV_REST || slot->window == 0;
}

/* Places n planes of a slot, for that number of rows, after *end. */
static gqac_status place(const kv_slot *s, int n, const kv_plane *planes, int64_t rows, size_t *end,
                         ptrdiff_t *at, gqac_diag *diag) {
    *at = (ptrdiff_t)*end;
    for (int i = 0; i < n; i++) {
        const int64_t dims[4] = {s->heads, rows, planes[i].size, (int64_t)planes[i].width};
        size_t bytes = 0;
        GQAC_TRY(gqac_shape_bytes(GQAC_U8, 4, dims, &bytes, diag));
        if (!gqac_add_size(*end, bytes + ALIGNMENT - 1, end) || *end > PTRDIFF_MAX / 2)
            GQAC_FAIL(diag, GQAC_LIMIT, "a KV block of '%s' would be too large", s->past);
        *end = *end / ALIGNMENT * ALIGNMENT;
    }
    return GQAC_OK;
}

static gqac_status measure_slot(kv_pool *pool, int slot, gqac_diag *diag) {
    kv_slot *s = &pool->slots[slot];
    if (s->heads < 1 || s->head_size < 1 || s->rows < 0 || gqac_dtype_bits(s->dtype) % 8 ||
        !gqac_dtype_bits(s->dtype))
        GQAC_FAIL(diag, GQAC_UNSUPPORTED,
                  "the cache '%s' has %lld heads of %lld %s elements, which is not supported",
                  s->past, (long long)s->heads, (long long)s->head_size, gqac_dtype_name(s->dtype));
    const kv_plane whole = {.size = s->head_size, .width = (size_t)gqac_dtype_bits(s->dtype) / 8};
    for (kv_part part = 0; part < KV_PARTS; part++)
        pool->at[part][slot] = NOWHERE;
    if (s->rows)
        return place(s, 1, &whole, s->rows, &pool->state_bytes, &pool->offsets[slot], diag);
    if (s->tail)
        return place(s, 1, &whole, GQAC_KV_BLOCK, &pool->tail_bytes, &pool->offsets[slot], diag);
    for (kv_part part = 0; part < KV_PARTS; part++) {
        kv_plane planes[KV_PLANES];
        const int n = kv_slot_planes(pool, part, slot, planes);
        if (is_in(s, part))
            GQAC_TRY(place(s, n, planes, GQAC_KV_BLOCK, &pool->bytes[part], &pool->at[part][slot],
                           diag));
    }
    return GQAC_OK;
}

static gqac_status measure(kv_pool *pool, gqac_diag *diag) {
    bool has_states = false;
    for (int i = 0; i < pool->n_slots; i++)
        has_states = has_states || pool->slots[i].rows;
    for (int i = 0; i < pool->n_slots; i++) {
        kv_slot *s = &pool->slots[i];
        s->tail = has_states && !s->rows ? s->tail : 0;
        s->window = s->rows || s->tail ? 0 : s->window;
        s->coded = s->coded && !s->rows && !s->tail &&
                   (s->dtype == GQAC_F32 || s->dtype == GQAC_F16 || s->dtype == GQAC_BF16);
        pool->tail = s->tail > pool->tail ? s->tail : pool->tail;
        pool->window = s->window > pool->window ? s->window : pool->window;
        pool->has_codes = pool->has_codes || s->coded;
        GQAC_TRY(measure_slot(pool, i, diag));
    }
    for (kv_part part = 0; part < KV_PARTS; part++)
        pool->blocks[part].bytes = sizeof(kv_block) + pool->bytes[part];
    pool->tails.bytes = pool->tail_bytes;
    pool->states.bytes = sizeof(kv_block) + pool->state_bytes;
    return GQAC_OK;
}

gqac_status kv_pool_create(int n_slots, const kv_slot *slots, kv_pool **result, gqac_diag *diag) {
    kv_pool *pool = gqac_calloc(1, sizeof *pool);
    if (!pool)
        return gqac_diag_oom(diag, "a KV pool");
    pool->n_slots = n_slots;
    pthread_mutex_init(&pool->numbers.lock, NULL);
    for (kv_part part = 0; part < KV_PARTS; part++)
        kv_slabs_open(&pool->blocks[part], 0);
    kv_slabs_open(&pool->tails, 0);
    kv_slabs_open(&pool->states, 0);
    pool->slots = gqac_calloc((size_t)n_slots, sizeof *pool->slots);
    pool->offsets = gqac_calloc((size_t)n_slots * (KV_PARTS + 1), sizeof *pool->offsets);
    gqac_status status = GQAC_OK;
    if (pool->slots && pool->offsets) {
        for (kv_part part = 0; part < KV_PARTS; part++)
            pool->at[part] = pool->offsets + (size_t)n_slots * (part + 1);
        for (int i = 0; i < n_slots; i++)
            pool->slots[i] = slots[i];
        status = measure(pool, diag);
    } else {
        status = gqac_diag_oom(diag, "a KV pool");
    }
    if (status != GQAC_OK) {
        kv_pool_free(pool);
        return status;
    }
    *result = pool;
    return GQAC_OK;
}

/* Bytes of the budget that a block takes, with its rows in windows and its tails, if each of them
 * needs a slab. */
static size_t block_least(const kv_pool *pool, kv_part part, bool window) {
    return kv_slabs_least(&pool->blocks[part]) +
           (window ? kv_slabs_least(&pool->blocks[KV_WINDOW]) : 0) +
           (pool->tail_bytes ? kv_slabs_least(&pool->tails) : 0);
}

/* `spare` keeps a slab from taking bytes that another piece of the same block needs. */
void kv_pool_set_budget(kv_pool *pool, gqac_budget *budget) {
    size_t spare = 0;
    for (kv_part part = 0; part < KV_PARTS; part++) {
        const size_t least = block_least(pool, part, pool->window);
        spare = least > spare ? least : spare;
    }
    for (kv_part part = 0; part < KV_PARTS; part++) {
        pool->blocks[part].budget = budget;
        pool->blocks[part].spare = spare;
    }
    pool->tails.budget = pool->states.budget = budget;
    pool->tails.spare = pool->states.spare = spare;
}

void kv_pool_free(kv_pool *pool) {
    if (!pool)
        return;
    for (kv_part part = 0; part < KV_PARTS; part++)
        kv_slabs_close(&pool->blocks[part]);
    kv_slabs_close(&pool->tails);
    kv_slabs_close(&pool->states);
    pthread_mutex_destroy(&pool->numbers.lock);
    gqac_free(pool->numbers.released);
    gqac_free(pool->slots);
    gqac_free(pool->offsets);
    gqac_free(pool);
}

int kv_pool_slots(const kv_pool *pool) {
    return pool->n_slots;
}

const kv_slot *kv_pool_slot(const kv_pool *pool, int slot) {
    return &pool->slots[slot];
}

size_t kv_pool_block_bytes(const kv_pool *pool, const kv_kind *kind) {
    return pool->bytes[kind->part];
}

size_t kv_pool_window_bytes(const kv_pool *pool, const kv_kind *kind) {
    return kind->window ? pool->bytes[KV_WINDOW] : 0;
}

size_t kv_pool_tail_bytes(const kv_pool *pool) {
    return pool->tail_bytes;
}

int64_t kv_pool_tail(const kv_pool *pool) {
    return pool->tail;
}

int64_t kv_pool_window(const kv_pool *pool) {
    return pool->window;
}

bool kv_pool_has_codes(const kv_pool *pool) {
    return pool->has_codes;
}

size_t kv_pool_blocks_in_use(kv_pool *pool) {
    size_t n = 0;
    for (kv_part part = 0; part < KV_PARTS; part++)
        n += part == KV_WINDOW ? 0 : kv_slabs_taken(&pool->blocks[part]);
    return n;
}

size_t kv_pool_windows_in_use(kv_pool *pool) {
    return kv_slabs_taken(&pool->blocks[KV_WINDOW]);
}

size_t kv_pool_tails_in_use(kv_pool *pool) {
    return kv_slabs_taken(&pool->tails);
}

unsigned char *kv_slot_memory(const kv_pool *pool, kv_block *block, int slot) {
    if (pool->slots[slot].rows)
        return block->data + pool->offsets[slot];
    if (pool->slots[slot].tail)
        return block->tails ? block->tails + pool->offsets[slot] : NULL;
    const ptrdiff_t at = pool->at[block->part][slot];
    return at == NOWHERE ? NULL : block->data + at;
}

size_t kv_slot_scales_at(const kv_slot *slot, int bits) {
    return (size_t)slot->heads * (size_t)kv_code_bytes(slot->head_size, bits) * GQAC_KV_BLOCK;
}

int kv_slot_planes(const kv_pool *pool, kv_part part, int slot, kv_plane planes[KV_PLANES]) {
    const kv_slot *s = &pool->slots[slot];
    const int bits = kv_slot_bits(s, part);
    planes[0] = (kv_plane){.heads = s->heads,
                           .size = bits ? kv_code_bytes(s->head_size, bits) : s->head_size,
                           .width = bits ? 1 : (size_t)gqac_dtype_bits(s->dtype) / 8,
                           .columns = s->columns};
    planes[1] = (kv_plane){
        .at = kv_slot_scales_at(s, bits), .heads = s->heads, .size = 1, .width = sizeof(float)};
    return s->rows ? 0 : bits ? 2 : 1;
}

size_t kv_pool_state_bytes(const kv_pool *pool) {
    return pool->state_bytes;
}

size_t kv_pool_states_in_use(kv_pool *pool) {
    return kv_slabs_taken(&pool->states);
}

static kv_block *create(kv_slabs *slabs, bool dense) {
    kv_block *block = dense ? kv_slabs_take_dense(slabs) : kv_slabs_take(slabs);
    if (!block)
        return NULL;
    atomic_init(&block->references, 1);
    block->data = block->own;
    block->tails = NULL;
    memset(block->data, KV_UNWRITTEN, slabs->bytes - sizeof *block);
    return block;
}

/* A block of the next `bytes` bytes of an image. */
static kv_block *map(kv_image *image, size_t bytes) {
    kv_block *block = gqac_data_alloc(sizeof *block); /* aligned as the struct is */
    if (!block)
        return NULL;
    atomic_init(&block->references, 1);
    block->data = kv_image_next(image, bytes);
    block->tails = NULL;
    return block;
}

/* Drops a reference; true if it was the last. */
static bool unreference(kv_block *block) {
    return atomic_fetch_sub(&block->references, 1) == 1;
}

static uint64_t next_version(kv_pool *pool) {
    return atomic_fetch_add(&pool->versions, 1) + 1;
}

/* Frees a block or a state, which is a piece of these slabs unless it is mapped. */
static void give(kv_slabs *slabs, kv_block *block) {
    if (kv_block_is_mapped(block))
        gqac_free(block);
    else
        kv_slabs_give(slabs, block);
}

/* Gives a new block, which is NULL if there was no memory for it, its number. */
static kv_block *identify(kv_pool *pool, kv_part part, kv_block *block) {
    size_t number;
    if (!block)
        return NULL;
    if (!take_number(&pool->numbers, &number)) {
        give(&pool->blocks[part], block);
        return NULL;
    }
    block->part = part;
    block->id = (kv_block_id){.number = number, .version = next_version(pool)};
    block->reserved = 0;
    return block;
}

kv_block *kv_block_create(kv_pool *pool, const kv_kind *kind, bool tails) {
    const kv_part part = kind->part;
    kv_block *block = identify(pool, part, create(&pool->blocks[part], kind->dense));
    if (!block || !tails || !pool->tail_bytes)
        return block;
    block->tails = kv_slabs_take(&pool->tails);
    if (!block->tails) {
        kv_block_release(pool, block);
        return NULL;
    }
    memset(block->tails, KV_UNWRITTEN, pool->tail_bytes);
    return block;
}

kv_block *kv_block_map(kv_pool *pool, const kv_kind *kind, bool tails, kv_image *image) {
    kv_block *block = identify(pool, kind->part, map(image, pool->bytes[kind->part]));
    if (block && tails && pool->tail_bytes)
        block->tails = kv_image_next(image, pool->tail_bytes);
    return block;
}

kv_block *kv_window_map(kv_pool *pool, kv_image *image) {
    kv_block *block = map(image, pool->bytes[KV_WINDOW]);
    if (block)
        block->part = KV_WINDOW;
    return block;
}

kv_block *kv_state_map(kv_pool *pool, kv_image *image) {
    return map(image, pool->state_bytes);
}

kv_block *kv_window_create(kv_pool *pool) {
    kv_block *block = create(&pool->blocks[KV_WINDOW], false);
    if (block)
        block->part = KV_WINDOW;
    return block;
}

kv_block *kv_state_create(kv_pool *pool) {
    return create(&pool->states, false);
}

gqac_status kv_block_fail(kv_pool *pool, const kv_kind *kind, gqac_diag *diag) {
    return gqac_budget_fail(pool->blocks[kind->part].budget,
                            block_least(pool, kind->part, kind->window), "a KV block", diag);
}

gqac_status kv_state_fail(kv_pool *pool, gqac_diag *diag) {
    return gqac_budget_fail(pool->states.budget, kv_slabs_least(&pool->states),
                            "the state of a sequence", diag);
}

/* The memory of rows [first, end) of every head of a plane, as runs of contiguous bytes of equal
 * length: one run per head, or per column. */
typedef struct runs {
    size_t at, count, step, bytes; /* first offset in the slot; number; stride; bytes of a run */
} runs;

static runs runs_of(const kv_plane *p, int64_t first, int64_t end) {
    const size_t n = (size_t)(end - first);
    const size_t unit = p->columns ? p->width : (size_t)p->size * p->width;
    return (runs){.at = p->at + (size_t)first * unit,
                  .count = (size_t)p->heads * (p->columns ? (size_t)p->size : 1),
                  .step = GQAC_KV_BLOCK * unit,
                  .bytes = n * unit};
}

/* Copies the rows [first, end) of a block; from NULL: fills them with NaN bytes. */
static void fill(kv_pool *pool, kv_block *block, kv_block *from, int64_t first, int64_t end) {
    for (int slot = 0; slot < pool->n_slots; slot++) {
        kv_plane planes[KV_PLANES];
        const int n = kv_slot_planes(pool, block->part, slot, planes);
        unsigned char *to = n ? kv_slot_memory(pool, block, slot) : NULL;
        const unsigned char *old = n && from ? kv_slot_memory(pool, from, slot) : NULL;
        if (!to || (from && !old))
            continue;
        for (int plane = 0; plane < n; plane++) {
            const runs r = runs_of(&planes[plane], first, end);
            for (size_t i = 0; i < r.count; i++)
                if (from)
                    memcpy(to + r.at + i * r.step, old + r.at + i * r.step, r.bytes);
                else
                    memset(to + r.at + i * r.step, KV_UNWRITTEN, r.bytes);
        }
    }
}

kv_block *kv_block_copy(kv_pool *pool, const kv_kind *kind, kv_block *old, int64_t rows) {
    kv_block *block =
        old->part == KV_WINDOW ? kv_window_create(pool) : kv_block_create(pool, kind, true);
    if (block)
        fill(pool, block, old, 0, rows);
    return block;
}

void kv_block_reserve(kv_pool *pool, kv_block *block, int64_t first, int64_t end) {
    if (block->reserved > first) {
        block->id.before = block->id.version;
        block->id.kept = first;
        block->id.version = next_version(pool);
    }
    block->reserved = end;
}

void kv_block_forget(kv_pool *pool, kv_block *block, int64_t row, int64_t end) {
    fill(pool, block, NULL, row, end);
}

kv_block *kv_block_share(kv_block *block) {
    atomic_fetch_add(&block->references, 1);
    return block;
}

void kv_block_drop_tails(kv_pool *pool, kv_block *block) {
    if (!block->tails || kv_block_is_mapped(block) || atomic_load(&block->references) > 1)
        return;
    kv_slabs_give(&pool->tails, block->tails);
    block->tails = NULL;
}

void kv_block_release(kv_pool *pool, kv_block *block) {
    if (!unreference(block))
        return;
    if (block->part != KV_WINDOW)
        release_number(&pool->numbers, block->id.number);
    if (block->tails && !kv_block_is_mapped(block))
        kv_slabs_give(&pool->tails, block->tails);
    give(&pool->blocks[block->part], block);
}

void kv_state_release(kv_pool *pool, kv_block *state) {
    if (unreference(state))
        give(&pool->states, state);
}
