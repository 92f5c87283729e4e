/* Images of sequences: kv.h describes them. */
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/file.h"
#include "kv/kv_impl.h"

unsigned char *kv_image_next(kv_image *image, size_t bytes) {
    const unsigned char *at = image->at;
    image->at += bytes;
    return (unsigned char *)(uintptr_t)at; /* shared blocks are only read */
}

/* Number of blocks that have rows in the tails before ascending positions. */
static int64_t tails_before(const kv_pool *pool, int n, const int64_t *positions) {
    int64_t count = 0, next = 0;
    for (int i = 0; i < n && kv_pool_tail(pool); i++) {
        const int64_t row = positions[i] - kv_pool_tail(pool);
        const int64_t first = row > 0 ? row / GQAC_KV_BLOCK : 0;
        const int64_t end = (positions[i] - 1) / GQAC_KV_BLOCK + 1;
        const int64_t from = first > next ? first : next;
        count += end > from ? end - from : 0;
        next = end > next ? end : next;
    }
    return count;
}

static bool add(size_t *sum, int64_t n, size_t bytes) {
    size_t all = 0;
    return gqac_mul_size((size_t)n, bytes, &all) && gqac_add_size(*sum, all, sum);
}

bool kv_image_bytes(const kv_pool *pool, const kv_kind *kind, int64_t length, int n,
                    const int64_t *positions, int64_t kept, size_t *blocks, size_t *states) {
    const int64_t all = (length + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK;
    const int64_t most = kv_windows_most(pool, length), left = all - kept / GQAC_KV_BLOCK;
    *blocks = *states = 0;
    return add(blocks, all, kv_pool_block_bytes(pool, kind)) &&
           add(blocks, left < most ? left : most, kv_pool_window_bytes(pool, kind)) &&
           add(blocks, tails_before(pool, n, positions), kv_pool_tail_bytes(pool)) &&
           add(states, n, kv_pool_state_bytes(pool));
}

static unsigned char *put(unsigned char *to, const unsigned char *from, size_t bytes) {
    if (bytes)
        memcpy(to, from, bytes);
    return to + bytes;
}

void kv_image_write(const kv_sequence *s, unsigned char *image) {
    const kv_states *states = &s->states;
    for (size_t i = 0; i < s->n_blocks; i++) {
        image = put(image, s->table[i]->data, kv_pool_block_bytes(s->pool, s->kind));
        if (kv_pool_tail_bytes(s->pool) && kv_needs_tails(s, i))
            image = put(image, s->table[i]->tails, kv_pool_tail_bytes(s->pool));
        if (s->windows && i >= s->dropped)
            image = put(image, s->windows[i]->data, kv_pool_window_bytes(s->pool, s->kind));
    }
    for (int k = 0; k < states->n; k++)
        image = put(image, states->marks[k].state->data, kv_pool_state_bytes(s->pool));
}

/* ---- layout -------------------------------------------------------------- */

/* Fills the rows of a head with different numbers of a type: normal ones, if it is a float. */
static void make_rows(gqac_dtype dtype, int64_t n, unsigned char *rows) {
    enum { FIRST = 0x3800, NUMBERS = 0x3000 }; /* high halves of f32 and bf16; also f16 */
    const size_t width = (size_t)gqac_dtype_bits(dtype) / 8;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t half = FIRST + (uint64_t)i % NUMBERS;
        const uint64_t bits = width == 4 ? half << 16 : width == 8 ? half << 48 : half;
        memcpy(rows + (size_t)i * width, &bits, width); /* the machine is little-endian */
    }
}

/* Writes known rows to all slots of a block, and adds its bytes to the digest. */
static gqac_status digest_block(kv_pool *pool, kv_block *block, size_t bytes, gqac_sha256 *state,
                                gqac_diag *diag) {
    for (int i = 0; i < kv_pool_slots(pool); i++) {
        const kv_slot *slot = kv_pool_slot(pool, i);
        unsigned char *memory = slot->rows ? NULL : kv_slot_memory(pool, block, i);
        const int64_t n = GQAC_KV_BLOCK * slot->head_size;
        unsigned char *rows =
            memory ? gqac_alloc((size_t)n * (size_t)gqac_dtype_bits(slot->dtype) / 8) : NULL;
        if (memory && !rows)
            return gqac_diag_oom(diag, "the layout of a KV block");
        if (rows)
            make_rows(slot->dtype, n, rows);
        for (int64_t h = 0; rows && h < slot->heads; h++)
            kv_rows_write(pool, block->part, i, memory, h, 0, GQAC_KV_BLOCK, rows);
        gqac_free(rows);
    }
    gqac_sha256_update(state, block->data, bytes);
    if (block->tails)
        gqac_sha256_update(state, block->tails, kv_pool_tail_bytes(pool));
    return GQAC_OK;
}

static gqac_status digest_blocks(kv_pool *pool, const kv_kind *kind, kv_block *block,
                                 kv_block *window, gqac_sha256 *state, gqac_diag *diag) {
    if (!block || (kind->window && kv_pool_window(pool) && !window))
        return kv_block_fail(pool, kind, diag);
    GQAC_TRY(digest_block(pool, block, kv_pool_block_bytes(pool, kind), state, diag));
    if (!window)
        return GQAC_OK;
    return digest_block(pool, window, kv_pool_window_bytes(pool, kind), state, diag);
}

gqac_status kv_layout_digest(kv_pool *pool, const kv_kind *kind, unsigned char digest[32],
                             gqac_diag *diag) {
    const uint64_t sizes[] = {GQAC_KV_BLOCK, kv_pool_block_bytes(pool, kind),
                              kv_pool_tail_bytes(pool), kv_pool_window_bytes(pool, kind),
                              kv_pool_state_bytes(pool)};
    gqac_sha256 state;
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, sizes, sizeof sizes);
    kv_block *block = kv_block_create(pool, kind, true);
    kv_block *window = kind->window && kv_pool_window(pool) ? kv_window_create(pool) : NULL;
    const gqac_status status = digest_blocks(pool, kind, block, window, &state, diag);
    if (block)
        kv_block_release(pool, block);
    if (window)
        kv_block_release(pool, window);
    gqac_sha256_final(&state, digest);
    return status;
}
