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

struct kv_pool {
    int n_slots;
    kv_slot *slots;
    size_t *offsets; /* of each slot: in the rows, the tails or the state */
    size_t block_bytes, tail_bytes, state_bytes;
    int64_t tail; /* the largest tail of the slots */
    kv_slabs blocks, tails, states;
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

static gqac_status measure(kv_pool *pool, gqac_diag *diag) {
    bool has_states = false;
    for (int i = 0; i < pool->n_slots; i++)
        has_states = has_states || pool->slots[i].rows;
    for (int i = 0; i < pool->n_slots; i++) {
        kv_slot *s = &pool->slots[i];
        s->tail = has_states && !s->rows ? s->tail : 0;
        pool->tail = s->tail > pool->tail ? s->tail : pool->tail;
        const int64_t dims[3] = {s->heads, s->rows ? s->rows : GQAC_KV_BLOCK, s->head_size};
        size_t bytes = 0, *end = s->rows   ? &pool->state_bytes
                                 : s->tail ? &pool->tail_bytes
                                           : &pool->block_bytes;
        if (s->heads < 1 || s->head_size < 1 || s->rows < 0 || gqac_dtype_bits(s->dtype) % 8 ||
            !gqac_dtype_bits(s->dtype))
            GQAC_FAIL(diag, GQAC_UNSUPPORTED, "'%s': a cache of %lld heads of %lld %s elements",
                      s->past, (long long)s->heads, (long long)s->head_size,
                      gqac_dtype_name(s->dtype));
        GQAC_TRY(gqac_shape_bytes(s->dtype, 3, dims, &bytes, diag));
        pool->offsets[i] = *end;
        if (!gqac_add_size(*end, bytes + ALIGNMENT - 1, end) || *end > PTRDIFF_MAX / 2)
            GQAC_FAIL(diag, GQAC_LIMIT, "a KV block of %d slots is too large", pool->n_slots);
        *end = *end / ALIGNMENT * ALIGNMENT;
    }
    pool->blocks.bytes = sizeof(kv_block) + pool->block_bytes;
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
    kv_slabs_open(&pool->blocks, 0);
    kv_slabs_open(&pool->tails, 0);
    kv_slabs_open(&pool->states, 0);
    pool->slots = gqac_calloc((size_t)n_slots, sizeof *pool->slots);
    pool->offsets = gqac_calloc((size_t)n_slots, sizeof *pool->offsets);
    gqac_status status = GQAC_OK;
    if (pool->slots && pool->offsets) {
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

void kv_pool_set_budget(kv_pool *pool, gqac_budget *budget) {
    pool->blocks.budget = pool->tails.budget = pool->states.budget = budget;
}

void kv_pool_free(kv_pool *pool) {
    if (!pool)
        return;
    kv_slabs_close(&pool->blocks);
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

size_t kv_pool_block_bytes(const kv_pool *pool) {
    return pool->block_bytes;
}

size_t kv_pool_tail_bytes(const kv_pool *pool) {
    return pool->tail_bytes;
}

int64_t kv_pool_tail(const kv_pool *pool) {
    return pool->tail;
}

size_t kv_pool_blocks_in_use(kv_pool *pool) {
    return kv_slabs_taken(&pool->blocks);
}

size_t kv_pool_tails_in_use(kv_pool *pool) {
    return kv_slabs_taken(&pool->tails);
}

unsigned char *kv_slot_memory(const kv_pool *pool, kv_block *block, int slot) {
    unsigned char *part = pool->slots[slot].tail ? block->tails : block->data;
    return part ? part + pool->offsets[slot] : NULL;
}

size_t kv_slot_row_bytes(const kv_pool *pool, int slot) {
    const kv_slot *s = &pool->slots[slot];
    return (size_t)s->head_size * (size_t)gqac_dtype_bits(s->dtype) / 8;
}

size_t kv_pool_state_bytes(const kv_pool *pool) {
    return pool->state_bytes;
}

size_t kv_pool_states_in_use(kv_pool *pool) {
    return kv_slabs_taken(&pool->states);
}

static kv_block *create(kv_slabs *slabs) {
    kv_block *block = kv_slabs_take(slabs);
    if (!block)
        return NULL;
    atomic_init(&block->references, 1);
    block->tails = NULL;
    memset(block->data, KV_UNWRITTEN, slabs->bytes - sizeof *block);
    return block;
}

/* Drops a reference; true if it was the last. */
static bool unreference(kv_block *block) {
    return atomic_fetch_sub(&block->references, 1) == 1;
}

static uint64_t next_version(kv_pool *pool) {
    return atomic_fetch_add(&pool->versions, 1) + 1;
}

kv_block *kv_block_create(kv_pool *pool, bool tails) {
    size_t number;
    if (!take_number(&pool->numbers, &number))
        return NULL;
    kv_block *block = create(&pool->blocks);
    if (!block) {
        release_number(&pool->numbers, number);
        return NULL;
    }
    block->id = (kv_block_id){.number = number, .version = next_version(pool)};
    block->reserved = 0;
    if (!tails || !pool->tail_bytes)
        return block;
    block->tails = kv_slabs_take(&pool->tails);
    if (!block->tails) {
        kv_block_release(pool, block);
        return NULL;
    }
    memset(block->tails, KV_UNWRITTEN, pool->tail_bytes);
    return block;
}

kv_block *kv_state_create(kv_pool *pool) {
    return create(&pool->states);
}

gqac_status kv_block_fail(kv_pool *pool, gqac_diag *diag) {
    return gqac_budget_fail(pool->blocks.budget, pool->blocks.bytes + pool->tails.bytes + ALIGNMENT,
                            "a KV block", diag);
}

gqac_status kv_state_fail(kv_pool *pool, gqac_diag *diag) {
    return gqac_budget_fail(pool->states.budget, pool->states.bytes + ALIGNMENT,
                            "the state of a sequence", diag);
}

size_t kv_slot_width(const kv_pool *pool, int slot) {
    return (size_t)gqac_dtype_bits(pool->slots[slot].dtype) / 8;
}

/* The memory of rows [first, end) of every head of a slot, as runs of contiguous bytes of equal
 * length: one run per head, or per column. A state has no rows and no runs. */
typedef struct runs {
    size_t at, count, step, bytes; /* first offset in the slot; number; stride; bytes of a run */
} runs;

static runs runs_of(const kv_pool *pool, int slot, int64_t first, int64_t end) {
    const kv_slot *s = &pool->slots[slot];
    const size_t element = kv_slot_width(pool, slot), n = (size_t)(end - first);
    const size_t unit = s->columns ? element : (size_t)s->head_size * element;
    return (runs){.at = (size_t)first * unit,
                  .count = s->rows ? 0 : (size_t)s->heads * (s->columns ? (size_t)s->head_size : 1),
                  .step = GQAC_KV_BLOCK * unit,
                  .bytes = n * unit};
}

kv_block *kv_block_copy(kv_pool *pool, kv_block *old, int64_t rows) {
    kv_block *block = kv_block_create(pool, true);
    for (int slot = 0; block && slot < pool->n_slots; slot++) {
        const runs r = runs_of(pool, slot, 0, rows);
        unsigned char *to = kv_slot_memory(pool, block, slot);
        const unsigned char *from = kv_slot_memory(pool, old, slot);
        for (size_t i = 0; i < r.count && from; i++)
            memcpy(to + r.at + i * r.step, from + r.at + i * r.step, r.bytes);
    }
    return block;
}

void kv_block_reserve(kv_pool *pool, kv_block *block, int64_t first, int64_t end) {
    if (block->reserved > first)
        block->id.version = next_version(pool);
    block->reserved = end;
}

void kv_block_forget(kv_pool *pool, kv_block *block, int64_t row) {
    for (int slot = 0; slot < pool->n_slots; slot++) {
        const runs r = runs_of(pool, slot, row, GQAC_KV_BLOCK);
        unsigned char *memory = kv_slot_memory(pool, block, slot);
        for (size_t i = 0; i < r.count && memory; i++)
            memset(memory + r.at + i * r.step, KV_UNWRITTEN, r.bytes);
    }
}

kv_block *kv_block_share(kv_block *block) {
    atomic_fetch_add(&block->references, 1);
    return block;
}

void kv_block_drop_tails(kv_pool *pool, kv_block *block) {
    if (!block->tails || atomic_load(&block->references) > 1)
        return;
    kv_slabs_give(&pool->tails, block->tails);
    block->tails = NULL;
}

void kv_block_release(kv_pool *pool, kv_block *block) {
    if (!unreference(block))
        return;
    release_number(&pool->numbers, block->id.number);
    if (block->tails)
        kv_slabs_give(&pool->tails, block->tails);
    kv_slabs_give(&pool->blocks, block);
}

void kv_state_release(kv_pool *pool, kv_block *state) {
    if (unreference(state))
        kv_slabs_give(&pool->states, state);
}
