/* A sequence: a table of blocks and a published length.
 *
 * Full blocks of published rows may be shared with forks and are never written again. Reserve makes
 * every block from the first row to be written on the sequence's own, so that no shared block is
 * ever written. Only publish and rewind change the length.
 *
 * A windowed sequence has a second table, of the blocks of slots with a window. Publish gives back
 * those that no step will read, from the first on, and the pool reuses them: a ring of whole
 * blocks. No row is overwritten, so a step that fails has nothing to undo. */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "kv/codes.h"
#include "kv/kv_impl.h"

static gqac_status create(kv_pool *pool, const kv_kind *kind, int64_t capacity,
                          kv_sequence **sequence, gqac_diag *diag) {
    kv_sequence *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a sequence");
    s->pool = pool;
    s->kind = kind;
    s->capacity = capacity;
    *sequence = s;
    return GQAC_OK;
}

gqac_status kv_sequence_create(kv_pool *pool, const char *name, int64_t capacity,
                               kv_sequence **sequence, gqac_diag *diag) {
    const kv_kind *kind = NULL;
    GQAC_TRY(kv_pool_kind(pool, name, &kind, diag));
    return create(pool, kind, capacity, sequence, diag);
}

bool kv_sequence_has_windows(const kv_sequence *s) {
    return s->kind->window && kv_pool_window(s->pool) > 0;
}

int64_t kv_sequence_kept(const kv_sequence *s) {
    return (int64_t)s->dropped * GQAC_KV_BLOCK;
}

/* Releases the blocks from index n on. */
static void shrink(kv_sequence *s, size_t n) {
    while (s->n_blocks > n) {
        kv_block_release(s->pool, s->table[--s->n_blocks]);
        if (s->windows && s->n_blocks >= s->dropped)
            kv_block_release(s->pool, s->windows[s->n_blocks]);
    }
    s->dropped = s->dropped < n ? s->dropped : n;
}

void kv_sequence_free(kv_sequence *sequence) {
    if (!sequence)
        return;
    shrink(sequence, 0);
    kv_states_rewind(sequence->pool, &sequence->states, 0);
    gqac_free(sequence->table);
    gqac_free(sequence->windows);
    gqac_free(sequence);
}

const char *kv_sequence_kind(const kv_sequence *sequence) {
    return sequence->kind->name;
}

bool kv_sequences_interchange(const kv_sequence *a, const kv_sequence *b) {
    return a->kind->part == b->kind->part && a->kind->window == b->kind->window;
}

void kv_sequence_set_kind(kv_sequence *fork, const kv_sequence *other) {
    assert(kv_sequences_interchange(fork, other));
    fork->kind = other->kind;
}

const char *kv_sequence_profile(const kv_sequence *sequence) {
    return sequence->kind->profile;
}

const kv_slot *kv_sequence_slot(const kv_sequence *sequence, int64_t slot) {
    const bool known = slot >= 0 && slot < kv_pool_slots(sequence->pool);
    return known ? kv_pool_slot(sequence->pool, (int)slot) : NULL;
}

int64_t kv_sequence_length(const kv_sequence *sequence) {
    return sequence->length;
}

int64_t kv_sequence_capacity(const kv_sequence *sequence) {
    return sequence->capacity;
}

void kv_sequence_set_capacity(kv_sequence *sequence, int64_t capacity) {
    assert(!capacity || capacity >= sequence->length);
    sequence->capacity = capacity;
}

static size_t blocks_for(int64_t tokens) {
    return ((size_t)tokens + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK;
}

static gqac_status grow_table(kv_sequence *s, size_t need, gqac_diag *diag) {
    if (need <= s->allocated)
        return GQAC_OK;
    const size_t entries = need > 2 * s->allocated ? need : 2 * s->allocated;
    kv_block **table = gqac_realloc(s->table, entries * sizeof *table);
    if (!table)
        return gqac_diag_oom(diag, "a block table");
    s->table = table;
    if (kv_sequence_has_windows(s)) {
        kv_block **windows = gqac_realloc(s->windows, entries * sizeof *windows);
        if (!windows)
            return gqac_diag_oom(diag, "a block table");
        s->windows = windows;
    }
    s->allocated = entries;
    return GQAC_OK;
}

/* Replaces a block that will be written by a copy, if it is shared. */
static gqac_status own(kv_sequence *s, kv_block **block, gqac_diag *diag) {
    if (atomic_load(&(*block)->references) == 1)
        return GQAC_OK;
    int64_t rows = s->length % GQAC_KV_BLOCK;
#ifdef GQAC_CONTROL_STALE_BLOCK /* negative control: the last row that is shared is not copied */
    rows -= rows > 0;
#endif
    kv_block *copy = kv_block_copy(s->pool, s->kind, *block, rows);
    if (!copy)
        return kv_block_fail(s->pool, s->kind, diag);
    kv_block_release(s->pool, *block);
    *block = copy;
    return GQAC_OK;
}

/* Makes the first block that will be written the sequence's own. Later blocks are its own: forks
 * share only blocks with published rows. */
static gqac_status own_last(kv_sequence *s, gqac_diag *diag) {
    const size_t last = (size_t)s->length / GQAC_KV_BLOCK;
    if (last >= s->n_blocks)
        return GQAC_OK;
    GQAC_TRY(own(s, &s->table[last], diag));
    return s->windows && last >= s->dropped ? own(s, &s->windows[last], diag) : GQAC_OK;
}

/* Adds one block; image NULL: it is created. */
static gqac_status add_block(kv_sequence *s, bool tails, bool window, kv_image *image,
                             gqac_diag *diag) {
    kv_block *block = image ? kv_block_map(s->pool, s->kind, tails, image)
                            : kv_block_create(s->pool, s->kind, tails);
    if (block && window &&
        !(s->windows[s->n_blocks] =
              image ? kv_window_map(s->pool, image) : kv_window_create(s->pool))) {
        kv_block_release(s->pool, block);
        block = NULL;
    }
    if (!block)
        return kv_block_fail(s->pool, s->kind, diag);
    s->table[s->n_blocks++] = block;
    return GQAC_OK;
}

/* Reserves the rows [length, total) of the sequence's own blocks. */
static void reserve_rows(const kv_sequence *s, int64_t total) {
    for (int64_t at = s->length; at < total; at += GQAC_KV_BLOCK - at % GQAC_KV_BLOCK) {
        const int64_t row = at % GQAC_KV_BLOCK, end = row + total - at;
        kv_block_reserve(s->pool, s->table[at / GQAC_KV_BLOCK], row,
                         end < GQAC_KV_BLOCK ? end : GQAC_KV_BLOCK);
    }
}

/* The first row that queries at `position` and later read of a slot with that window. */
static int64_t first_read(int64_t position, int64_t window) {
    return window > 0 && position + 1 > window ? position + 1 - window : 0;
}

/* Number of blocks of slots with a window that a sequence of that length does not keep. */
static size_t outside(const kv_pool *pool, int64_t length) {
    const int64_t first = first_read(length, kv_pool_window(pool));
    return first > KV_REACH ? (size_t)(first - KV_REACH) / GQAC_KV_BLOCK : 0;
}

bool kv_pool_may_keep(const kv_pool *pool, int64_t length, int64_t kept) {
    return kept >= 0 && kept % GQAC_KV_BLOCK == 0 &&
           kept <= first_read(length, kv_pool_window(pool));
}

int64_t kv_windows_most(const kv_pool *pool, int64_t length) {
    return (int64_t)(blocks_for(length) - outside(pool, length));
}

/* Reserves blocks for `total` tokens. n >= 0: slots with a tail are needed only before the n
 * positions, and slots with a window only where a sequence of `total` tokens keeps them; n < 0:
 * everywhere. `kept`, `image`: as in kv_sequence_restore. */
static gqac_status reserve_blocks(kv_sequence *s, int64_t total, int n, const int64_t *positions,
                                  int64_t kept, kv_image *image, gqac_diag *diag) {
    if (total < 0)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "cannot reserve %lld tokens", (long long)total);
    if (s->capacity && total > s->capacity) {
        gqac_diag_set(diag, GQAC_CAPACITY, "%lld tokens do not fit the capacity of %lld",
                      (long long)total, (long long)s->capacity);
        gqac_diag_rule(diag, "past and new tokens together must fit the capacity");
        gqac_diag_hint(diag, "open the sequence with a larger capacity, or rewind it");
        return GQAC_CAPACITY;
    }
    const size_t before = s->n_blocks, need = blocks_for(total);
    GQAC_TRY(grow_table(s, need, diag));
    const size_t lacking = (size_t)kept / GQAC_KV_BLOCK, most = outside(s->pool, total);
    if (s->windows && n >= 0)
        s->dropped = lacking > most ? lacking : most;
    gqac_status status = GQAC_OK;
    while (status == GQAC_OK && s->n_blocks < need) {
        bool tails = n < 0;
        for (int i = 0; i < n && !tails; i++)
            tails = kv_in_tail(s->pool, s->n_blocks, positions[i]);
        status = add_block(s, tails, s->windows && s->n_blocks >= s->dropped, image, diag);
    }
    if (status == GQAC_OK && total > s->length)
        status = own_last(s, diag);
    if (status == GQAC_OK)
        reserve_rows(s, total);
    else
        shrink(s, before);
    return status;
}

gqac_status kv_sequence_reserve(kv_sequence *s, int64_t total, gqac_diag *diag) {
    const size_t before = s->n_blocks;
    GQAC_TRY(reserve_blocks(s, total, -1, NULL, 0, NULL, diag));
    const gqac_status status = kv_states_reserve(s->pool, &s->states, s->length, total, diag);
    if (status != GQAC_OK)
        shrink(s, before);
    return status;
}

gqac_status kv_sequence_restore(kv_sequence *s, int64_t total, int n, const int64_t *positions,
                                int64_t base, int64_t kept, kv_image *image, gqac_diag *diag) {
    assert(s->length == 0 && (!n || positions[n - 1] == total));
    shrink(s, 0);
    GQAC_TRY(reserve_blocks(s, total, n, positions, kept, image, diag));
    const gqac_status status =
        kv_states_restore(s->pool, &s->states, n, positions, base, image, diag);
    if (status != GQAC_OK)
        shrink(s, 0);
    return status;
}

size_t kv_sequence_bytes(const kv_sequence *s, size_t *shared) {
    const size_t state = kv_pool_state_bytes(s->pool);
    size_t bytes = (size_t)s->states.n * state;
    *shared = 0;
    for (size_t i = 0; i < s->n_blocks; i++) {
        const size_t block = kv_pool_block_bytes(s->pool, s->kind) +
                             (s->table[i]->tails ? kv_pool_tail_bytes(s->pool) : 0);
        const size_t window =
            s->windows && i >= s->dropped ? kv_pool_window_bytes(s->pool, s->kind) : 0;
        bytes += block + window;
        *shared += atomic_load(&s->table[i]->references) > 1 ? block : 0;
        *shared += window && atomic_load(&s->windows[i]->references) > 1 ? window : 0;
    }
    for (int i = 0; i < s->states.n; i++)
        *shared += atomic_load(&s->states.marks[i].state->references) > 1 ? state : 0;
    return s->states.spare ? bytes + state : bytes;
}

int64_t kv_sequence_common(const kv_sequence *a, const kv_sequence *b) {
    size_t common = 0, end = a->n_blocks < b->n_blocks ? a->n_blocks : b->n_blocks;
    if (!end || a->table[0] != b->table[0]) /* the common case: nothing is shared */
        return 0;
    if (a->dropped != b->dropped) /* one lacks rows that the other reads */
        return 0;
    while (common < end) { /* after a block that differs, forks share none */
        const size_t i = (common + end) / 2;
        if (a->table[i] == b->table[i])
            common = i + 1;
        else
            end = i;
    }
    return (int64_t)common * GQAC_KV_BLOCK;
}

bool kv_needs_tails(const kv_sequence *s, size_t block) {
    for (int i = 0; i < s->states.n; i++)
        if (kv_in_tail(s->pool, block, s->states.marks[i].position))
            return true;
    return false;
}

/* Frees the memory of slots with a tail in blocks that no reachable length needs. */
static void drop_tails(kv_sequence *s) {
    for (size_t block = 0; block < blocks_for(s->length); block++)
        if (!kv_needs_tails(s, block))
            kv_block_drop_tails(s->pool, s->table[block]);
}

/* Releases blocks of slots with a window that no length in reach reads. */
static void drop_windows(kv_sequence *s) {
    const size_t end = s->windows ? outside(s->pool, s->length) : 0;
    while (s->dropped < end)
        kv_block_release(s->pool, s->windows[s->dropped++]);
#ifdef GQAC_CONTROL_WINDOW_EARLY /* negative control: the first row in the window is forgotten */
    const int64_t row = first_read(s->length, kv_pool_window(s->pool));
    if (s->windows && row < s->length)
        kv_block_forget(s->pool, s->windows[row / GQAC_KV_BLOCK], row % GQAC_KV_BLOCK,
                        row % GQAC_KV_BLOCK + 1);
#endif
}

void kv_sequence_publish(kv_sequence *sequence, int64_t length) {
    const size_t before = blocks_for(sequence->length);
    assert(length >= sequence->length && blocks_for(length) <= sequence->n_blocks);
    kv_states_publish(sequence->pool, &sequence->states, length);
    sequence->length = length;
    if (kv_pool_tail(sequence->pool) && blocks_for(length) > before)
        drop_tails(sequence);
    drop_windows(sequence);
}

int64_t kv_sequence_reach(const kv_sequence *s, int64_t length) {
    const int64_t most = length < s->length ? length : s->length;
    const int64_t reach = kv_pool_state_bytes(s->pool) ? kv_states_reach(&s->states, most) : most;
    const int64_t first = first_read(reach, kv_pool_window(s->pool));
    return first < (int64_t)s->dropped * GQAC_KV_BLOCK ? 0 : reach;
}

gqac_status kv_sequence_rewind(kv_sequence *s, int64_t length, gqac_diag *diag) {
    if (length < 0 || length > s->length)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "cannot rewind a sequence of %lld tokens to %lld",
                  (long long)s->length, (long long)length);
    if (kv_sequence_reach(s, length) != length)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE,
                  "cannot rewind to %lld tokens: the state after them, or a row of their windows, "
                  "was not kept",
                  (long long)length);
    shrink(s, blocks_for(length));
    kv_states_rewind(s->pool, &s->states, length);
    s->length = length;
    s->finite = length < s->finite ? length : s->finite;
#ifdef GQAC_POISON
    const int64_t row = length % GQAC_KV_BLOCK;
    if (row && atomic_load(&s->table[s->n_blocks - 1]->references) == 1)
        kv_block_forget(s->pool, s->table[s->n_blocks - 1], row, GQAC_KV_BLOCK);
    if (row && s->windows && atomic_load(&s->windows[s->n_blocks - 1]->references) == 1)
        kv_block_forget(s->pool, s->windows[s->n_blocks - 1], row, GQAC_KV_BLOCK);
#endif
    return GQAC_OK;
}

gqac_status kv_sequence_fork(const kv_sequence *s, kv_sequence **fork, gqac_diag *diag) {
    kv_sequence *copy = NULL;
    const size_t n = blocks_for(s->length);
    GQAC_TRY(create(s->pool, s->kind, s->capacity, &copy, diag));
    gqac_status status = grow_table(copy, n, diag);
    if (status != GQAC_OK) {
        kv_sequence_free(copy);
        return status;
    }
    copy->dropped = s->dropped;
    for (size_t i = 0; i < n; i++) {
        if (copy->windows && i >= s->dropped)
            copy->windows[i] = kv_block_share(s->windows[i]);
        copy->table[copy->n_blocks++] = kv_block_share(s->table[i]);
    }
    copy->length = s->length;
    copy->finite = s->finite;
    kv_states_fork(&s->states, &copy->states);
    *fork = copy;
    return GQAC_OK;
}

/* Replaces a block by another one with the same rows. */
static void replace(kv_sequence *s, kv_block **block, kv_block *other) {
    kv_block *old = *block;
    *block = kv_block_share(other);
    kv_block_release(s->pool, old);
}

void kv_sequence_adopt(kv_sequence *s, const kv_sequence *donor, int64_t length) {
    int64_t most = s->length < donor->length ? s->length : donor->length;
    most = length < most ? length : most;
    assert(s->kind == donor->kind && s->pool == donor->pool);
    for (size_t i = 0; i < (size_t)most / GQAC_KV_BLOCK; i++) {
        const bool window = s->windows && i >= s->dropped;
        if ((s->table[i]->tails && !donor->table[i]->tails) || (window && i < donor->dropped))
            return;
        replace(s, &s->table[i], donor->table[i]);
        if (window)
            replace(s, &s->windows[i], donor->windows[i]);
    }
}

/* ---- states -------------------------------------------------------------- */

const void *kv_state_last(const kv_sequence *s, int slot) {
    const kv_states *all = &s->states;
    assert(kv_pool_slot(s->pool, slot)->rows && (s->length == 0) == (all->n == 0));
    return all->n ? kv_slot_memory(s->pool, all->marks[all->n - 1].state, slot) : NULL;
}

int kv_states_due(const kv_sequence *s) {
    return s->states.n_due;
}

void *kv_state_due(const kv_sequence *s, int slot, int i, int64_t *position) {
    assert(kv_pool_slot(s->pool, slot)->rows && i >= 0 && i < s->states.n_due);
    const kv_mark *due = &s->states.due[i];
    *position = due->position;
    return kv_slot_memory(s->pool, due->state, slot);
}

int kv_states_kept(const kv_sequence *s) {
    return s->states.n;
}

const void *kv_state_kept(const kv_sequence *s, int slot, int i) {
    assert(kv_pool_slot(s->pool, slot)->rows && i >= 0 && i < s->states.n);
    return kv_slot_memory(s->pool, s->states.marks[i].state, slot);
}

int64_t kv_state_position(const kv_sequence *s, int i) {
    assert(i >= 0 && i < s->states.n);
    return s->states.marks[i].position;
}

/* ---- rows ---------------------------------------------------------------- */

/* Bytes of one row of one head in canonical memory. */
static size_t row_bytes(const kv_slot *slot) {
    return (size_t)slot->head_size * (size_t)gqac_dtype_bits(slot->dtype) / 8;
}

/* The number of rows of one head that are contiguous: from `position` to the end of its block, at
 * most `count`. */
static int64_t run_length(int64_t position, int64_t count) {
    const int64_t left = GQAC_KV_BLOCK - position % GQAC_KV_BLOCK;
    return left < count ? left : count;
}

/* The block that has, or had, the rows of a slot; NULL: it is not kept. */
static kv_block *block_of(const kv_sequence *s, int slot, int64_t position) {
    const size_t index = (size_t)position / GQAC_KV_BLOCK;
    assert(position >= 0 && index < s->n_blocks); /* reserved */
    if (!s->windows || !kv_pool_slot(s->pool, slot)->window)
        return s->table[index];
    return index < s->dropped ? NULL : s->windows[index];
}

static unsigned char *slot_at(const kv_sequence *s, int slot, int64_t position) {
    kv_block *block = block_of(s, slot, position);
    return block ? kv_slot_memory(s->pool, block, slot) : NULL;
}

int64_t kv_sequence_first(const kv_sequence *s, int slot) {
    return s->kind->window ? first_read(s->length, kv_pool_slot(s->pool, slot)->window) : 0;
}

int kv_sequence_code_bits(const kv_sequence *s, int slot) {
    return kv_slot_bits(kv_pool_slot(s->pool, slot), s->kind->part);
}

int kv_kind_bits(const kv_kind *kind) {
    return kv_part_bits(kind->part);
}

int kv_sequence_kind_bits(const kv_sequence *s) {
    return kv_kind_bits(s->kind);
}

bool kv_sequences_alike(const kv_sequence *a, const kv_sequence *b) {
    return kv_sequence_kind_bits(a) == kv_sequence_kind_bits(b);
}

kv_block_id kv_block_identity(const kv_sequence *s, int64_t position) {
    assert(position >= 0 && (size_t)position / GQAC_KV_BLOCK < s->n_blocks); /* reserved */
    return s->table[position / GQAC_KV_BLOCK]->id;
}

const unsigned char *kv_block_memory(const kv_sequence *s, int slot, int64_t position) {
    assert(!kv_pool_slot(s->pool, slot)->tail);
    return slot_at(s, slot, position);
}

/* The memory of a slot in the block where `count` rows are written next, from a position on; NULL:
 * it is not kept. */
static unsigned char *slot_to_write(const kv_sequence *s, int slot, int64_t position,
                                    int64_t count) {
    /* a fork after reserve shares blocks again: reserve again before writing */
    const kv_block *block = block_of(s, slot, position);
    (void)block;
    (void)count;
    assert(position >= s->length); /* published rows never change */
    assert(!block || atomic_load(&block->references) == 1);
    assert(position % GQAC_KV_BLOCK + count <= s->table[position / GQAC_KV_BLOCK]->reserved);
    return slot_at(s, slot, position);
}

void kv_write_head(kv_sequence *s, int slot, int64_t head, int64_t position, int64_t count,
                   const void *rows) {
    const kv_slot *kind = kv_pool_slot(s->pool, slot);
    assert(!kind->rows);
    for (int64_t i = 0, n; i < count; i += n) {
        n = run_length(position + i, count - i);
        unsigned char *to = slot_to_write(s, slot, position + i, n);
        if (to)
            kv_rows_write(s->pool, s->kind->part, slot, to, head, (position + i) % GQAC_KV_BLOCK, n,
                          (const char *)rows + (size_t)i * row_bytes(kind));
    }
}

void kv_read_head(const kv_sequence *s, int slot, int64_t head, int64_t position, int64_t count,
                  void *rows) {
    const size_t bytes = row_bytes(kv_pool_slot(s->pool, slot));
    for (int64_t i = 0, n; i < count; i += n) {
        n = run_length(position + i, count - i);
        const unsigned char *from = slot_at(s, slot, position + i);
        char *to = (char *)rows + (size_t)i * bytes;
        if (from)
            kv_rows_read(s->pool, s->kind->part, slot, from, head, (position + i) % GQAC_KV_BLOCK,
                         n, to);
        else
            memset(to, KV_UNWRITTEN, (size_t)n * bytes);
    }
}

void kv_write_rows(kv_sequence *s, int slot, int64_t position, int64_t count, const void *rows,
                   int64_t stride) {
    const size_t bytes = row_bytes(kv_pool_slot(s->pool, slot));
    for (int64_t h = 0; h < kv_pool_slot(s->pool, slot)->heads; h++)
        kv_write_head(s, slot, h, position, count,
                      (const char *)rows + (size_t)(h * stride) * bytes);
}

void kv_read_rows(const kv_sequence *s, int slot, int64_t position, int64_t count, void *rows,
                  int64_t stride) {
    const size_t bytes = row_bytes(kv_pool_slot(s->pool, slot));
    for (int64_t h = 0; h < kv_pool_slot(s->pool, slot)->heads; h++)
        kv_read_head(s, slot, h, position, count, (char *)rows + (size_t)(h * stride) * bytes);
}

int64_t kv_sequence_finite(kv_sequence *s) {
    for (int64_t n = 1, good = 1; s->finite < s->length && good == n; s->finite += good) {
        n = good = run_length(s->finite, s->length - s->finite);
        for (int slot = 0; slot < kv_pool_slots(s->pool); slot++) {
            const kv_slot *kind = kv_pool_slot(s->pool, slot);
            const unsigned char *rows =
                kind->rows || kind->tail ? NULL : kv_block_memory(s, slot, s->finite);
            for (int64_t h = 0; rows && h < kind->heads; h++)
                good = kv_rows_finite(s->pool, s->kind->part, slot, rows, h,
                                      s->finite % GQAC_KV_BLOCK, good);
        }
    }
    return s->finite;
}

void kv_write_codes(kv_sequence *s, int slot, int64_t head, int64_t position, int64_t count,
                    const void *codes, const float *scales) {
    const size_t bytes = (size_t)kv_code_bytes(kv_pool_slot(s->pool, slot)->head_size,
                                               kv_sequence_code_bits(s, slot));
    for (int64_t i = 0, n; i < count; i += n) {
        float *to_scales;
        n = run_length(position + i, count - i);
        unsigned char *to =
            kv_rows_codes(s->pool, s->kind->part, slot, slot_to_write(s, slot, position + i, n),
                          head, (position + i) % GQAC_KV_BLOCK, &to_scales);
        memcpy(to, (const char *)codes + (size_t)i * bytes, (size_t)n * bytes);
        memcpy(to_scales, scales + i, (size_t)n * sizeof *scales);
    }
}

void kv_read_codes(const kv_sequence *s, int slot, int64_t head, int64_t position, int64_t count,
                   void *codes, float *scales) {
    const size_t bytes = (size_t)kv_code_bytes(kv_pool_slot(s->pool, slot)->head_size,
                                               kv_sequence_code_bits(s, slot));
    for (int64_t i = 0, n; i < count; i += n) {
        float *from_scales;
        n = run_length(position + i, count - i);
        const unsigned char *from =
            kv_rows_codes(s->pool, s->kind->part, slot, slot_at(s, slot, position + i), head,
                          (position + i) % GQAC_KV_BLOCK, &from_scales);
        memcpy((char *)codes + (size_t)i * bytes, from, (size_t)n * bytes);
        memcpy(scales + i, from_scales, (size_t)n * sizeof *scales);
    }
}
