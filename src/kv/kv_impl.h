/* Private to src/kv: blocks, their layout, and states. */
#ifndef GQAC_KV_IMPL_H
#define GQAC_KV_IMPL_H

#include <stdatomic.h>

#include "kv/kv.h"

/* The rows of GQAC_KV_BLOCK tokens in every slot: one slot after another, each
 * [heads][GQAC_KV_BLOCK][head_size], or [heads][head_size][GQAC_KV_BLOCK] if the slot has
 * `columns`. Slots with a tail have memory of their own, which is freed as soon as no length that
 * the sequence can be rewound to needs it. */
typedef struct kv_block {
    atomic_size_t references;
    unsigned char *tails; /* NULL: there are no such slots, or they are not kept */
    kv_block_id id;       /* in a state, this and the next field are unused */
    int64_t reserved;     /* number of rows reserved since the block got its version */
    _Alignas(64) unsigned char data[];
} kv_block;

/* Creates a block with one reference, filled with NaN bytes; `tails`: with memory for slots that
 * have a tail. NULL: out of memory. */
kv_block *kv_block_create(kv_pool *pool, bool tails);
/* Creates a block with a copy of the first `rows` rows of `old`, the others filled with NaN bytes;
 * NULL: out of memory. */
kv_block *kv_block_copy(kv_pool *pool, kv_block *old, int64_t rows);
/* Lets a step write the rows [first, end). If any of them was reserved before, the block gets a new
 * version. */
void kv_block_reserve(kv_pool *pool, kv_block *block, int64_t first, int64_t end);
/* Fills the rows from `row` on with NaN bytes. */
void kv_block_forget(kv_pool *pool, kv_block *block, int64_t row);
kv_block *kv_block_share(kv_block *block);
/* Frees the memory of slots with a tail, unless the block is shared: another sequence may need
 * it. */
void kv_block_drop_tails(kv_pool *pool, kv_block *block);
void kv_block_release(kv_pool *pool, kv_block *block);
/* Creates a state with one reference, filled with NaN bytes; NULL: out of memory. */
kv_block *kv_state_create(kv_pool *pool);
void kv_state_release(kv_pool *pool, kv_block *state);
/* Fails because a block or state could not be created: CAPACITY or NO_MEMORY. */
gqac_status kv_block_fail(kv_pool *pool, gqac_diag *diag);
gqac_status kv_state_fail(kv_pool *pool, gqac_diag *diag);
/* The memory of a slot in a block, or, for a slot that is a state, in a state; NULL: it is not
 * kept. */
unsigned char *kv_slot_memory(const kv_pool *pool, kv_block *block, int slot);
/* Bytes of one row of one head. */
size_t kv_slot_row_bytes(const kv_pool *pool, int slot);
/* Bytes of one element. */
size_t kv_slot_width(const kv_pool *pool, int slot);

/* The largest tail of the slots; 0: there is none. */
int64_t kv_pool_tail(const kv_pool *pool);

enum { KV_UNWRITTEN = 0xFF }; /* of a byte: NaN in every float type */
enum { KV_MARKS = 64 };       /* more than kv_states_most of any length */

/* The state after `position` tokens. */
typedef struct kv_mark {
    int64_t position;
    kv_block *state;
} kv_mark;

typedef struct kv_states {
    int n, n_due;
    int64_t base; /* position of a mark that is kept until a rewind before it (that of imported
                     tokens); 0: none */
    kv_mark marks[KV_MARKS]; /* ascending; the last is at the published length, unless that is 0 */
    kv_mark due[KV_MARKS];   /* of the reserved step, ascending */
    kv_block *spare;         /* not in use, kept because decoding alternates between two states */
} kv_states;

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
                              int64_t base, gqac_diag *diag);

#endif
