/* KV blocks: where a sequence keeps its cached keys, values and other per-token rows.
 *
 * A program has `n_slots` slots, one for each past/present pair (layer 0 key, layer 0 value, ...).
 * A block holds the rows of GQAC_KV_BLOCK consecutive tokens in every slot. Blocks belong to a pool
 * and are reference-counted; a sequence is a table of blocks and a published length. Rows at or
 * after the length are unspecified (NaN bytes 0xFF until they are written), and no reader is given
 * them.
 *
 * Invariants: 0 <= length <= capacity of the table; a step reserves before it writes, writes only
 * rows in [length, length + new), and publishes the new length after all layers have run, so that a
 * failed step leaves the sequence as it was. Between a reserve and the next, each row of a slot is
 * written once at most.
 *
 * A slot may hold a state in place of rows: what a recurrent layer keeps of all tokens so far. See
 * "States" below. Where there are states, a sequence can be rewound to some lengths only, and rows
 * that are read at the end of the cache alone (kv_slot.tail) are kept for those lengths only. */
#ifndef GQAC_KV_KV_H
#define GQAC_KV_KV_H

#include <gqac/tensor.h>

#include "base/diag.h"

#define GQAC_KV_BLOCK 64 /* tokens in a block: one key tile of the contract */

/* One past/present pair. heads and head_size come from the model. */
typedef struct kv_slot {
    const char *past;    /* graph input, e.g. "past_key_values.0.key" */
    const char *present; /* graph output, e.g. "present.0.key" */
    int64_t heads;
    int64_t head_size;
    gqac_dtype dtype;
    /* The layout of a head's block: [head_size][GQAC_KV_BLOCK] (columns), or
     * [GQAC_KV_BLOCK][head_size]. The target chooses. Rows at this interface are [rows][head_size]
     * either way (canonical). */
    bool columns;
    int64_t rows; /* 0: one row for each token; else the slot is a state [heads][rows][head_size] */
    /* 0: all rows are read; else only the last `tail` rows before the length, as a convolution
     * reads its input. A pool without states sets it to 0: any length can become the length. */
    int64_t tail;
} kv_slot;

typedef struct kv_pool kv_pool;         /* thread-safe: blocks and their reference counts */
typedef struct kv_sequence kv_sequence; /* one conversation; one thread at a time */

/* `slots` is copied except for its names, which must outlive the pool. UNSUPPORTED, LIMIT: an
 * impossible geometry; NO_MEMORY. */
gqac_status kv_pool_create(int n_slots, const kv_slot *slots, kv_pool **pool, gqac_diag *diag);
void kv_pool_free(kv_pool *pool); /* after all its sequences */
int kv_pool_slots(const kv_pool *pool);
const kv_slot *kv_pool_slot(const kv_pool *pool, int slot);
size_t kv_pool_block_bytes(const kv_pool *pool); /* one block, all slots but those with a tail */
size_t kv_pool_tail_bytes(const kv_pool *pool);  /* the slots with a tail in one block */
size_t kv_pool_blocks_in_use(kv_pool *pool);
size_t kv_pool_tails_in_use(kv_pool *pool); /* blocks that have their slots with a tail */

/* kind: "contiguous" (alias "basic"), with or without blanks around it; others are USAGE, and the
 * message lists the known ones.
 * capacity: maximum number of tokens; 0: as many as fit into memory. */
gqac_status kv_sequence_create(kv_pool *pool, const char *kind, int64_t capacity,
                               kv_sequence **sequence, gqac_diag *diag);
void kv_sequence_free(kv_sequence *sequence);
const char *kv_sequence_kind(const kv_sequence *sequence);
/* For a fork: another maximum, not less than its length; 0: none. */
void kv_sequence_set_capacity(kv_sequence *sequence, int64_t capacity);
const kv_slot *kv_sequence_slot(const kv_sequence *sequence, int64_t slot); /* NULL: no such slot */
int64_t kv_sequence_length(const kv_sequence *sequence);                    /* published tokens */
int64_t kv_sequence_capacity(const kv_sequence *sequence);                  /* 0: no maximum */

/* Allocates blocks for `total` tokens. CAPACITY, NO_MEMORY: the sequence is as it was. A shared
 * block that would be written is copied first. */
gqac_status kv_sequence_reserve(kv_sequence *sequence, int64_t total, gqac_diag *diag);
/* Publishes a length that is reserved and fully written. */
void kv_sequence_publish(kv_sequence *sequence, int64_t length);
/* Shortens to `length` tokens. OUT_OF_RANGE: it is negative, more than there are, or a length for
 * which the sequence has no state. Blocks after it are released. */
gqac_status kv_sequence_rewind(kv_sequence *sequence, int64_t length, gqac_diag *diag);
/* A second sequence with the same published rows; blocks are shared until one sequence writes to
 * them. */
gqac_status kv_sequence_fork(const kv_sequence *sequence, kv_sequence **fork, gqac_diag *diag);

/* Rows of one slot between canonical memory and blocks: `rows` is [heads, stride, head_size] in
 * the slot's dtype; row (h, i) is at element (h * stride + i) * head_size. Positions
 * [position, position + count) must be reserved (write), or published or written in this step
 * (read). Rows that are not kept (kv_slot.tail) are read as NaN bytes, and are not written. */
void kv_write_rows(kv_sequence *sequence, int slot, int64_t position, int64_t count,
                   const void *rows, int64_t stride);
void kv_read_rows(const kv_sequence *sequence, int slot, int64_t position, int64_t count,
                  void *rows, int64_t stride);
/* The same for one head: rows are [count, head_size]. */
void kv_write_head(kv_sequence *sequence, int slot, int64_t head, int64_t position, int64_t count,
                   const void *rows);
void kv_read_head(const kv_sequence *sequence, int slot, int64_t head, int64_t position,
                  int64_t count, void *rows);
/* The memory of the block that holds a reserved position, of a slot without a tail: [heads] times
 * what the slot's `columns` says. Valid until the sequence reserves, rewinds or is freed. */
const unsigned char *kv_block_memory(const kv_sequence *sequence, int slot, int64_t position);

/* What identifies a block for copies of its rows elsewhere, as in the memory of a device. Within
 * one version each row of a slot is written once at most, so a copy of written rows stays right. A
 * new block has a version that no block of the pool had before, and so has a block from the moment
 * when rows of it are reserved again: after a rewind, or a step that failed. */
typedef struct kv_block_id {
    size_t number;    /* of a block in use, from 0; freed numbers are used again */
    uint64_t version; /* from 1 */
} kv_block_id;
/* Of the block that holds a reserved position. */
kv_block_id kv_block_identity(const kv_sequence *sequence, int64_t position);

/* States. A sequence has a state for its published length (at length 0 there is none; it stands for
 * zeros) and for some earlier lengths, which are multiples of GQAC_KV_BLOCK: to get back d tokens
 * from the greatest length so far, at most max(64, 2 d) tokens are computed again, from one of
 * these states. A state never changes: a step reads the last one and writes others, which replace
 * it when the step publishes. */
size_t kv_pool_state_bytes(const kv_pool *pool); /* one state, all such slots; 0: there is no
                                                    such slot */
size_t kv_pool_states_in_use(kv_pool *pool);     /* shared states count once */
int64_t kv_states_most(int64_t length);          /* maximum that a sequence of that length keeps */
/* The maximum number of blocks whose slots with a tail a sequence of that length keeps. */
int64_t kv_tails_most(const kv_pool *pool, int64_t length);
/* The largest length, at most `length`, to which the sequence can be rewound. */
int64_t kv_sequence_reach(const kv_sequence *sequence, int64_t length);
/* The state of a slot at the published length; NULL when that is 0. */
const void *kv_state_last(const kv_sequence *sequence, int slot);
/* After reserve: the number of states that the step must write as a whole, ... */
int kv_states_due(const kv_sequence *sequence);
/* ... the memory of one, and *position, the number of tokens before it; i ascending, the last is
 * after all tokens. */
void *kv_state_due(const kv_sequence *sequence, int slot, int i, int64_t *position);
/* For saving and loading a sequence: how many states it keeps, ... */
int kv_states_kept(const kv_sequence *sequence);
/* ... and one state; i ascending. */
const void *kv_state_kept(const kv_sequence *sequence, int slot, int i);
int64_t kv_state_position(const kv_sequence *sequence, int i); /* tokens before that state */
/* Like reserve, for an empty sequence that is loaded or imported: allocates blocks for `total`
 * tokens, and states at n ascending positions, the last of which is `total`. The caller writes all
 * of these, then publishes. The state at `base` is kept until a rewind before it; 0: there is no
 * such state. Rows of slots with a tail are kept before these positions only. */
gqac_status kv_sequence_restore(kv_sequence *sequence, int64_t total, int n,
                                const int64_t *positions, int64_t base, gqac_diag *diag);
/* Bytes of blocks and states of a sequence; *shared: the part that other sequences hold as well. */
size_t kv_sequence_bytes(const kv_sequence *sequence, size_t *shared);
/* Number of leading tokens that lie in the same blocks, a multiple of GQAC_KV_BLOCK; more than 0
 * for forks only. */
int64_t kv_sequence_common(const kv_sequence *a, const kv_sequence *b);

#endif
