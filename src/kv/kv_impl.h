/* Private to src/kv: blocks, their layout, and states. */
#ifndef GQAC_KV_IMPL_H
#define GQAC_KV_IMPL_H

#include <stdatomic.h>

#include "kv/kv.h"

/* Which slots share a block. Slots with a tail have memory of their own, which is freed as soon as
 * no length that the sequence can be rewound to needs it. */
typedef enum kv_part {
    KV_WHOLE,  /* all */
    KV_REST,   /* those without a window */
    KV_WINDOW, /* those with a window */
    KV_CODES,  /* all; coded ones as codes of 8 bits */
    KV_CODES4, /* the same, of 4 bits */
    KV_PARTS
} kv_part;

struct kv_kind {
    const char *name, *alias; /* alias NULL: none */
    const char *profile;
    kv_part part;
    bool window; /* slots with a window are in blocks of their own, of KV_WINDOW */
    bool dense;  /* kv_slabs_take_dense */
};

/* The rows of GQAC_KV_BLOCK tokens in the slots of a part: one slot after another, each
 * [heads][GQAC_KV_BLOCK][head_size], or [heads][head_size][GQAC_KV_BLOCK] if the slot has
 * `columns`. */
typedef struct kv_block {
    atomic_size_t references;
    unsigned char *data;  /* `own`, or a part of an image, which is only read */
    unsigned char *tails; /* NULL: there are no such slots, or they are not kept */
    kv_block_id id;       /* in a state or KV_WINDOW, this and the next field are unused */
    int64_t reserved;     /* number of rows reserved since the block got its version */
    kv_part part;         /* in a state, unused */
    _Alignas(64) unsigned char own[];
} kv_block;

/* True if the block, or state, was not created but mapped. */
static inline bool kv_block_is_mapped(const kv_block *block) {
    return block->data != block->own;
}

/* Creates a block with one reference, filled with NaN bytes; `tails`: with memory for slots that
 * have a tail. NULL: out of memory. */
kv_block *kv_block_create(kv_pool *pool, const kv_kind *kind, bool tails);
/* The same for KV_WINDOW. */
kv_block *kv_window_create(kv_pool *pool);
/* The same three with the next bytes of an image instead of memory of the pool. */
kv_block *kv_block_map(kv_pool *pool, const kv_kind *kind, bool tails, kv_image *image);
kv_block *kv_window_map(kv_pool *pool, kv_image *image);
kv_block *kv_state_map(kv_pool *pool, kv_image *image);
/* Creates a block with a copy of the first `rows` rows of `old`, the others filled with NaN bytes;
 * NULL: out of memory. */
kv_block *kv_block_copy(kv_pool *pool, const kv_kind *kind, kv_block *old, int64_t rows);
/* Lets a step write the rows [first, end). If any of them was reserved before, the block gets a new
 * version. */
void kv_block_reserve(kv_pool *pool, kv_block *block, int64_t first, int64_t end);
/* Fills the rows [row, end) with NaN bytes. */
void kv_block_forget(kv_pool *pool, kv_block *block, int64_t row, int64_t end);
kv_block *kv_block_share(kv_block *block);
/* Frees the memory of slots with a tail, unless the block is shared: another sequence may need
 * it. */
void kv_block_drop_tails(kv_pool *pool, kv_block *block);
void kv_block_release(kv_pool *pool, kv_block *block);
/* Creates a state with one reference, filled with NaN bytes; NULL: out of memory. */
kv_block *kv_state_create(kv_pool *pool);
void kv_state_release(kv_pool *pool, kv_block *state);
/* Fails because a block or state could not be created: CAPACITY or NO_MEMORY. Call it before other
 * memory is given back, which would hide that the budget was used up. */
gqac_status kv_block_fail(kv_pool *pool, const kv_kind *kind, gqac_diag *diag);
gqac_status kv_state_fail(kv_pool *pool, gqac_diag *diag);
/* The memory of a slot in a block, or, for a slot that is a state, in a state; NULL: it is not
 * kept, or in another part. */
unsigned char *kv_slot_memory(const kv_pool *pool, kv_block *block, int slot);

/* A matrix of elements for each head and row of a slot: its rows; or its codes, as bytes, then its
 * scales. */
typedef struct kv_plane {
    size_t at;    /* from the memory of the slot */
    size_t width; /* bytes of an element */
    int64_t heads, size;
    bool columns;
} kv_plane;
enum { KV_PLANES = 2 };
/* Sets the planes of a slot in a part, and returns their number; 0: the slot is a state. */
int kv_slot_planes(const kv_pool *pool, kv_part part, int slot, kv_plane planes[KV_PLANES]);
/* Bits of the codes of coded slots in that part; 0: their rows are kept as they are. */
static inline int kv_part_bits(kv_part part) {
    return part == KV_CODES ? 8 : part == KV_CODES4 ? 4 : 0;
}
/* The same for a slot. */
static inline int kv_slot_bits(const kv_slot *slot, kv_part part) {
    return slot->coded ? kv_part_bits(part) : 0;
}
/* Copy rows [row, row + count) of a head between the memory of a slot of that part and canonical
 * memory [count, head_size]. */
void kv_rows_write(const kv_pool *pool, kv_part part, int slot, unsigned char *memory, int64_t head,
                   int64_t row, int64_t count, const void *rows);
void kv_rows_read(const kv_pool *pool, kv_part part, int slot, const unsigned char *memory,
                  int64_t head, int64_t row, int64_t count, void *rows);
/* Returns how many of these rows precede the first with a NaN or an infinity. */
int64_t kv_rows_finite(const kv_pool *pool, kv_part part, int slot, const unsigned char *memory,
                       int64_t head, int64_t row, int64_t count);
/* For a slot without columns that is kept as codes: returns the address of the codes of a row of a
 * head, and sets *scales to the address of its scale. The codes and scales of later rows follow. */
unsigned char *kv_rows_codes(const kv_pool *pool, kv_part part, int slot, unsigned char *memory,
                             int64_t head, int64_t row, float **scales);

/* The largest tail of the slots, and the largest window; 0: there is none. */
int64_t kv_pool_tail(const kv_pool *pool);
int64_t kv_pool_window(const kv_pool *pool);
bool kv_pool_has_codes(const kv_pool *pool); /* some slot is coded */

enum { KV_UNWRITTEN = 0xFF }; /* fills rows before they are written: NaN in all float types */
enum { KV_MARKS = KV_STATES_MOST };

/* The state after `position` tokens. */
typedef struct kv_mark {
    int64_t position;
    kv_block *state;
} kv_mark;

typedef struct kv_states {
    int n, n_due;
    int64_t base; /* position of a mark that is dropped only by a rewind to before it: the state of
                     imported tokens; 0: none */
    kv_mark marks[KV_MARKS]; /* ascending; the last is at the published length, unless that is 0 */
    kv_mark due[KV_MARKS];   /* of the reserved step, ascending */
    kv_block *spare;         /* not in use, kept because decoding alternates between two states */
} kv_states;

struct kv_sequence {
    kv_pool *pool;
    const kv_kind *kind;
    int64_t capacity, length;
    int64_t finite;             /* kv_sequence_finite, as far as it has been asked for */
    size_t n_blocks, allocated; /* blocks in the table; capacity of the table */
    kv_block **table;
    kv_block **windows; /* blocks of the slots with a window, where these are not in `table`; those
                           before `dropped` have been returned */
    size_t dropped;
    kv_states states;
};

/* True if a block has some of the rows in the tail before a position. */
static inline bool kv_in_tail(const kv_pool *pool, size_t block, int64_t position) {
    const int64_t begin = (int64_t)block * GQAC_KV_BLOCK;
    return begin < position && begin + GQAC_KV_BLOCK > position - kv_pool_tail(pool);
}

/* True if a block has rows that a state of the sequence needs: some in the tail before it. */
bool kv_needs_tails(const kv_sequence *s, size_t block);

/* The next bytes of an image. */
unsigned char *kv_image_next(kv_image *image, size_t bytes);

/* The parts of the kv_sequence_* functions that concern states; in pools without states they do
 * nothing. */
gqac_status kv_states_reserve(kv_pool *pool, kv_states *states, int64_t length, int64_t total,
                              gqac_diag *diag);
void kv_states_publish(kv_pool *pool, kv_states *states, int64_t length);
/* `length` is 0 or one of the marks. */
void kv_states_rewind(kv_pool *pool, kv_states *states, int64_t length);
void kv_states_fork(const kv_states *states, kv_states *fork);
int64_t kv_states_reach(const kv_states *states, int64_t length);
gqac_status kv_states_restore(kv_pool *pool, kv_states *states, int n, const int64_t *positions,
                              int64_t base, kv_image *image, gqac_diag *diag);

#endif
