/* A sequence: a table of blocks and a published length.
 *
 * Full blocks of published rows may be shared with forks and are never written again. Reserve makes
 * every block from the first row to be written on the sequence's own, so that no shared block is
 * ever written. Only publish and rewind change the length. */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "kv/kv_impl.h"

/* Cache kinds by name. A new kind is a new row. */
static const struct { const char *name, *alias; } kinds[] = {{"contiguous", "basic"}};

struct kv_sequence {
    kv_pool *pool;
    const char *kind;
    int64_t capacity, length;
    size_t n_blocks, allocated; /* blocks in the table; capacity of the table */
    kv_block **table;
    kv_states states;
};

/* True if a name equals `kind`, apart from blanks around it. */
static bool is_named(const char *name, const char *kind) {
    static const char blanks[] = " \t\r\n";
    const size_t n = strlen(kind);
    name += strspn(name, blanks);
    return !strncmp(name, kind, n) && !name[n + strspn(name + n, blanks)];
}

static gqac_status find_kind(const char *name, const char **kind, gqac_diag *diag) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is_named(name, kinds[i].name) || is_named(name, kinds[i].alias)) {
            *kind = kinds[i].name;
            return GQAC_OK;
        }
    gqac_str known = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        gqac_str_printf(&known, "%s%s (or %s)", i ? ", " : "", kinds[i].name, kinds[i].alias);
    gqac_diag_set(diag, GQAC_USAGE, "unknown or not yet built cache kind '%s'", name);
    gqac_diag_rule(diag, "known kinds: %s", known.failed ? kinds[0].name : known.text);
    gqac_str_free(&known);
    return GQAC_USAGE;
}

gqac_status kv_sequence_create(kv_pool *pool, const char *kind, int64_t capacity,
                               kv_sequence **sequence, gqac_diag *diag) {
    const char *name = NULL;
    GQAC_TRY(find_kind(kind, &name, diag));
    kv_sequence *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a sequence");
    s->pool = pool;
    s->kind = name;
    s->capacity = capacity;
    *sequence = s;
    return GQAC_OK;
}

/* Releases the blocks from index n on. */
static void shrink(kv_sequence *s, size_t n) {
    while (s->n_blocks > n)
        kv_block_release(s->pool, s->table[--s->n_blocks]);
}

void kv_sequence_free(kv_sequence *sequence) {
    if (!sequence)
        return;
    shrink(sequence, 0);
    kv_states_rewind(sequence->pool, &sequence->states, 0);
    gqac_free(sequence->table);
    gqac_free(sequence);
}

const char *kv_sequence_kind(const kv_sequence *sequence) {
    return sequence->kind;
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
    s->allocated = entries;
    return GQAC_OK;
}

/* Makes the first block that will be written the sequence's own, by a copy if it is shared. Later
 * blocks are its own: forks share only blocks with published rows. */
static gqac_status own_last(kv_sequence *s, gqac_diag *diag) {
    const size_t last = (size_t)s->length / GQAC_KV_BLOCK;
    if (last >= s->n_blocks || atomic_load(&s->table[last]->references) == 1)
        return GQAC_OK;
    int64_t rows = s->length % GQAC_KV_BLOCK;
#ifdef GQAC_CONTROL_STALE_BLOCK /* negative control: the last row that is shared is not copied */
    rows -= rows > 0;
#endif
    kv_block *own = kv_block_copy(s->pool, s->table[last], rows);
    if (!own)
        return kv_block_fail(s->pool, diag);
    kv_block_release(s->pool, s->table[last]);
    s->table[last] = own;
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

/* True if a block has some of the rows in the tail before a position. */
static bool in_tail(const kv_sequence *s, size_t block, int64_t position) {
    const int64_t begin = (int64_t)block * GQAC_KV_BLOCK;
    return begin < position && begin + GQAC_KV_BLOCK > position - kv_pool_tail(s->pool);
}

/* Reserves blocks for `total` tokens. Slots with a tail are needed only before the n positions; n <
 * 0: everywhere. */
static gqac_status reserve_blocks(kv_sequence *s, int64_t total, int n, const int64_t *positions,
                                  gqac_diag *diag) {
    if (total < 0)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "cannot reserve %lld tokens", (long long)total);
    if (s->capacity && total > s->capacity) {
        gqac_diag_set(diag, GQAC_CAPACITY, "%lld tokens do not fit the capacity of %lld",
                      (long long)total, (long long)s->capacity);
        gqac_diag_rule(diag, "past + new <= capacity");
        gqac_diag_hint(diag, "open the sequence with a larger capacity, or rewind it");
        return GQAC_CAPACITY;
    }
    const size_t before = s->n_blocks, need = blocks_for(total);
    GQAC_TRY(grow_table(s, need, diag));
    gqac_status status = GQAC_OK;
    while (status == GQAC_OK && s->n_blocks < need) {
        bool tails = n < 0;
        for (int i = 0; i < n && !tails; i++)
            tails = in_tail(s, s->n_blocks, positions[i]);
        kv_block *block = kv_block_create(s->pool, tails);
        if (block)
            s->table[s->n_blocks++] = block;
        else
            status = kv_block_fail(s->pool, diag);
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
    GQAC_TRY(reserve_blocks(s, total, -1, NULL, diag));
    const gqac_status status = kv_states_reserve(s->pool, &s->states, s->length, total, diag);
    if (status != GQAC_OK)
        shrink(s, before);
    return status;
}

gqac_status kv_sequence_restore(kv_sequence *s, int64_t total, int n, const int64_t *positions,
                                int64_t base, gqac_diag *diag) {
    assert(s->length == 0 && (!n || positions[n - 1] == total));
    GQAC_TRY(reserve_blocks(s, total, n, positions, diag));
    const gqac_status status = kv_states_restore(s->pool, &s->states, n, positions, base, diag);
    if (status != GQAC_OK)
        shrink(s, 0);
    return status;
}

size_t kv_sequence_bytes(const kv_sequence *s, size_t *shared) {
    const size_t state = kv_pool_state_bytes(s->pool);
    size_t bytes = (size_t)s->states.n * state;
    *shared = 0;
    for (size_t i = 0; i < s->n_blocks; i++) {
        const size_t block =
            kv_pool_block_bytes(s->pool) + (s->table[i]->tails ? kv_pool_tail_bytes(s->pool) : 0);
        bytes += block;
        *shared += atomic_load(&s->table[i]->references) > 1 ? block : 0;
    }
    for (int i = 0; i < s->states.n; i++)
        *shared += atomic_load(&s->states.marks[i].state->references) > 1 ? state : 0;
    return s->states.spare ? bytes + state : bytes;
}

int64_t kv_sequence_common(const kv_sequence *a, const kv_sequence *b) {
    size_t common = 0, end = a->n_blocks < b->n_blocks ? a->n_blocks : b->n_blocks;
    if (!end || a->table[0] != b->table[0]) /* the common case: nothing is shared */
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

/* Frees the memory of slots with a tail in blocks that no reachable length needs. */
static void drop_tails(kv_sequence *s) {
    const kv_states *states = &s->states;
    for (size_t block = 0; block < blocks_for(s->length); block++) {
        bool needed = false;
        for (int i = 0; i < states->n && !needed; i++)
            needed = in_tail(s, block, states->marks[i].position);
        if (!needed)
            kv_block_drop_tails(s->pool, s->table[block]);
    }
}

void kv_sequence_publish(kv_sequence *sequence, int64_t length) {
    const size_t before = blocks_for(sequence->length);
    assert(length >= sequence->length && blocks_for(length) <= sequence->n_blocks);
    kv_states_publish(sequence->pool, &sequence->states, length);
    sequence->length = length;
    if (kv_pool_tail(sequence->pool) && blocks_for(length) > before)
        drop_tails(sequence);
}

int64_t kv_sequence_reach(const kv_sequence *s, int64_t length) {
    const int64_t most = length < s->length ? length : s->length;
    return kv_pool_state_bytes(s->pool) ? kv_states_reach(&s->states, most) : most;
}

gqac_status kv_sequence_rewind(kv_sequence *s, int64_t length, gqac_diag *diag) {
    if (length < 0 || length > s->length)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "cannot rewind %lld tokens to %lld",
                  (long long)s->length, (long long)length);
    if (kv_sequence_reach(s, length) != length)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "the state after %lld tokens is not kept",
                  (long long)length);
    shrink(s, blocks_for(length));
    kv_states_rewind(s->pool, &s->states, length);
    s->length = length;
#ifdef GQAC_POISON
    const int64_t row = length % GQAC_KV_BLOCK;
    if (row && atomic_load(&s->table[s->n_blocks - 1]->references) == 1)
        kv_block_forget(s->pool, s->table[s->n_blocks - 1], row);
#endif
    return GQAC_OK;
}

gqac_status kv_sequence_fork(const kv_sequence *s, kv_sequence **fork, gqac_diag *diag) {
    kv_sequence *copy = NULL;
    const size_t n = blocks_for(s->length);
    GQAC_TRY(kv_sequence_create(s->pool, s->kind, s->capacity, &copy, diag));
    gqac_status status = grow_table(copy, n, diag);
    if (status != GQAC_OK) {
        kv_sequence_free(copy);
        return status;
    }
    for (size_t i = 0; i < n; i++)
        copy->table[copy->n_blocks++] = kv_block_share(s->table[i]);
    copy->length = s->length;
    kv_states_fork(&s->states, &copy->states);
    *fork = copy;
    return GQAC_OK;
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
    const kv_mark *due = &s->states.due[i];
    assert(kv_pool_slot(s->pool, slot)->rows && i >= 0 && i < s->states.n_due);
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

/* The number of rows of one head that are contiguous: from `position` to the end of its block, at
 * most `count`. */
static int64_t run_length(int64_t position, int64_t count) {
    const int64_t left = GQAC_KV_BLOCK - position % GQAC_KV_BLOCK;
    return left < count ? left : count;
}

static unsigned char *slot_at(const kv_sequence *s, int slot, int64_t position) {
    const size_t index = (size_t)position / GQAC_KV_BLOCK;
    assert(position >= 0 && index < s->n_blocks); /* reserved */
    return kv_slot_memory(s->pool, s->table[index], slot);
}

kv_block_id kv_block_identity(const kv_sequence *s, int64_t position) {
    assert(position >= 0 && (size_t)position / GQAC_KV_BLOCK < s->n_blocks); /* reserved */
    return s->table[position / GQAC_KV_BLOCK]->id;
}

const unsigned char *kv_block_memory(const kv_sequence *s, int slot, int64_t position) {
    assert(!kv_pool_slot(s->pool, slot)->tail);
    return slot_at(s, slot, position);
}

enum { AT_ONCE = 16 /* rows that are transposed at once */ };

/* write: columns[d * GQAC_KV_BLOCK + i] = rows[i * size + d] for i < n; read: the other
 * direction. */
#define TRANSPOSE(type)                                                                            \
    static void write_##type(type *columns, const type *rows, int64_t size, int64_t n) {           \
        for (int64_t first = 0; first < n; first += AT_ONCE)                                       \
            for (int64_t d = 0; d < size; d++)                                                     \
                for (int64_t i = first; i < n && i < first + AT_ONCE; i++)                         \
                    columns[d * GQAC_KV_BLOCK + i] = rows[i * size + d];                           \
    }                                                                                              \
    static void read_##type(const type *columns, type *rows, int64_t size, int64_t n) {            \
        for (int64_t first = 0; first < n; first += AT_ONCE)                                       \
            for (int64_t d = 0; d < size; d++)                                                     \
                for (int64_t i = first; i < n && i < first + AT_ONCE; i++)                         \
                    rows[i * size + d] = columns[d * GQAC_KV_BLOCK + i];                           \
    }
TRANSPOSE(uint8_t)
TRANSPOSE(uint16_t)
TRANSPOSE(uint32_t)
TRANSPOSE(uint64_t)

static void write_columns(size_t width, void *columns, const void *rows, int64_t size, int64_t n) {
    if (width == 1)
        write_uint8_t(columns, rows, size, n);
    else if (width == 2)
        write_uint16_t(columns, rows, size, n);
    else if (width == 4)
        write_uint32_t(columns, rows, size, n);
    else
        write_uint64_t(columns, rows, size, n);
}

static void read_columns(size_t width, const void *columns, void *rows, int64_t size, int64_t n) {
    if (width == 1)
        read_uint8_t(columns, rows, size, n);
    else if (width == 2)
        read_uint16_t(columns, rows, size, n);
    else if (width == 4)
        read_uint32_t(columns, rows, size, n);
    else
        read_uint64_t(columns, rows, size, n);
}

/* The first element of a row of a head; in columns, the next elements follow at a distance of
 * GQAC_KV_BLOCK elements. NULL: the row is not kept. */
static unsigned char *row_at(const kv_sequence *s, int slot, int64_t head, int64_t position) {
    const size_t bytes = kv_slot_row_bytes(s->pool, slot);
    const size_t step = kv_pool_slot(s->pool, slot)->columns ? kv_slot_width(s->pool, slot) : bytes;
    unsigned char *memory = slot_at(s, slot, position);
    return memory ? memory + (size_t)head * GQAC_KV_BLOCK * bytes +
                        (size_t)(position % GQAC_KV_BLOCK) * step
                  : NULL;
}

void kv_write_head(kv_sequence *s, int slot, int64_t head, int64_t position, int64_t count,
                   const void *rows) {
    const kv_slot *kind = kv_pool_slot(s->pool, slot);
    const size_t bytes = kv_slot_row_bytes(s->pool, slot), width = kv_slot_width(s->pool, slot);
    assert(position >= s->length && !kind->rows); /* published rows never change */
    for (int64_t i = 0, n; i < count; i += n) {
        n = run_length(position + i, count - i);
        /* a fork after reserve shares blocks again: reserve again before writing */
        assert(atomic_load(&s->table[(position + i) / GQAC_KV_BLOCK]->references) == 1);
        assert((position + i) % GQAC_KV_BLOCK + n <=
               s->table[(position + i) / GQAC_KV_BLOCK]->reserved);
        unsigned char *to = row_at(s, slot, head, position + i);
        const char *from = (const char *)rows + (size_t)i * bytes;
        if (kind->columns && to)
            write_columns(width, to, from, kind->head_size, n);
        else if (to)
            memcpy(to, from, (size_t)n * bytes);
    }
}

void kv_read_head(const kv_sequence *s, int slot, int64_t head, int64_t position, int64_t count,
                  void *rows) {
    const kv_slot *kind = kv_pool_slot(s->pool, slot);
    const size_t bytes = kv_slot_row_bytes(s->pool, slot), width = kv_slot_width(s->pool, slot);
    for (int64_t i = 0, n; i < count; i += n) {
        n = run_length(position + i, count - i);
        const unsigned char *from = row_at(s, slot, head, position + i);
        char *to = (char *)rows + (size_t)i * bytes;
        if (!from)
            memset(to, KV_UNWRITTEN, (size_t)n * bytes);
        else if (kind->columns)
            read_columns(width, from, to, kind->head_size, n);
        else
            memcpy(to, from, (size_t)n * bytes);
    }
}

void kv_write_rows(kv_sequence *s, int slot, int64_t position, int64_t count, const void *rows,
                   int64_t stride) {
    const size_t bytes = kv_slot_row_bytes(s->pool, slot);
    for (int64_t h = 0; h < kv_pool_slot(s->pool, slot)->heads; h++)
        kv_write_head(s, slot, h, position, count,
                      (const char *)rows + (size_t)(h * stride) * bytes);
}

void kv_read_rows(const kv_sequence *s, int slot, int64_t position, int64_t count, void *rows,
                  int64_t stride) {
    const size_t bytes = kv_slot_row_bytes(s->pool, slot);
    for (int64_t h = 0; h < kv_pool_slot(s->pool, slot)->heads; h++)
        kv_read_head(s, slot, h, position, count, (char *)rows + (size_t)(h * stride) * bytes);
}
