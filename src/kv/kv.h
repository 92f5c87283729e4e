/* The KV cache: blocks that hold the keys, values and other per-token rows of sequences.
 *
 * A program has `n_slots` slots, one for each past/present pair (layer 0 key, layer 0 value, ...).
 * A block holds the rows of GQAC_KV_BLOCK consecutive tokens in every slot. Blocks belong to a pool
 * and are reference-counted; a sequence is a table of blocks and a published length. Rows at or
 * after the length are unspecified (bytes 0xFF, which are NaN, until they are written), and no
 * reader has access to them.
 *
 * Invariants: 0 <= length <= capacity of the table; a step reserves before it writes, writes only
 * rows in [length, length + new), and publishes the new length after all layers have run, so that a
 * failed step leaves the sequence as it was. Between one reserve and the next, each row of a slot
 * is written at most once.
 *
 * A slot may hold a state instead of rows: what a recurrent layer keeps of all tokens so far. See
 * "States" below. A sequence with states can be rewound only to some lengths. Where only the last
 * rows of a slot are read (kv_slot.tail), rows are kept only before those lengths.
 *
 * The kind of a sequence says which rows it keeps, and in which form. See "Kinds" below. */
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
    /* The layout of one head in a block, which the target chooses: true:
     * [head_size][GQAC_KV_BLOCK]; false: [GQAC_KV_BLOCK][head_size]. Rows that this interface
     * copies are [rows][head_size] in either case (canonical). */
    bool columns;
    int64_t rows; /* 0: one row for each token; else the slot is a state [heads][rows][head_size] */
    /* 0: all rows are read; else only the last `tail` rows before the length, as a causal
     * convolution reads its input. A pool without states sets it to 0, because there a sequence can
     * be rewound to any length. */
    int64_t tail;
    /* 0: a query may read all rows; else the query at position p reads rows from p + 1 - window on.
     */
    int64_t window;
    bool coded; /* quantised kinds keep the rows as codes; the dtype is f32, f16 or bf16 */
} kv_slot;

typedef struct kv_kind kv_kind;         /* constant */
typedef struct kv_pool kv_pool;         /* thread-safe: blocks and their reference counts */
typedef struct kv_sequence kv_sequence; /* a table of blocks; one thread at a time */

/* Creates a pool. `slots` is copied, but not its names, which must outlive the pool. UNSUPPORTED,
 * LIMIT: the sizes of a slot are not possible; NO_MEMORY. */
gqac_status kv_pool_create(int n_slots, const kv_slot *slots, kv_pool **pool, gqac_diag *diag);
void kv_pool_free(kv_pool *pool); /* all its sequences must be freed before */
int kv_pool_slots(const kv_pool *pool);
const kv_slot *kv_pool_slot(const kv_pool *pool, int slot);
/* Bytes of one block, without the slots that have a tail and those that kv_pool_window_bytes
 * counts. */
size_t kv_pool_block_bytes(const kv_pool *pool, const kv_kind *kind);
size_t kv_pool_tail_bytes(const kv_pool *pool); /* of the slots with a tail in one block */
size_t kv_pool_blocks_in_use(kv_pool *pool);
size_t kv_pool_tails_in_use(kv_pool *pool); /* number of blocks whose slots with a tail are kept */
size_t kv_pool_windows_in_use(kv_pool *pool); /* number of blocks of slots with a window */

/* Kinds.
 *
 *   contiguous  all rows; the blocks of a sequence follow each other in memory where they can
 *   paged       all rows; each block is allocated on its own, from the slab with the fewest free
 *               blocks
 *   windowed    all rows of slots without a window. Slots with a window have blocks of their own,
 *               which return to the pool once no step can read them, not even after a rewind by
 *               KV_REACH tokens from the greatest length so far
 *   quantised   all rows, those of coded slots as codes of 8 bits: see "Codes"
 *   quantised4  the same, as codes of 4 bits
 *
 * Sets *kind by its name or alias ("basic" is contiguous, "int8" and "int4" are the last two), with
 * or without blanks around it. USAGE: the name is unknown; *diag lists the known ones. UNSUPPORTED:
 * a quantised kind, and no slot is coded. */
gqac_status kv_pool_kind(const kv_pool *pool, const char *name, const kv_kind **kind,
                         gqac_diag *diag);
enum { KV_REACH = GQAC_KV_BLOCK };

/* Creates an empty sequence. capacity: maximum number of tokens; 0: as many as fit into memory.
 * USAGE, UNSUPPORTED: as kv_pool_kind. */
gqac_status kv_sequence_create(kv_pool *pool, const char *kind, int64_t capacity,
                               kv_sequence **sequence, gqac_diag *diag);
void kv_sequence_free(kv_sequence *sequence);
const char *kv_sequence_kind(const kv_sequence *sequence);
/* True if the blocks of two sequences hold the same rows in the same form, so that a fork of one
 * may get the kind of the other. */
bool kv_sequences_interchange(const kv_sequence *a, const kv_sequence *b);
void kv_sequence_set_kind(kv_sequence *fork, const kv_sequence *other);
/* Gives a fork another maximum, not less than its length; 0: none. */
void kv_sequence_set_capacity(kv_sequence *sequence, int64_t capacity);
/* What the kind adds to the profile of the program: "/kv8" or "/kv4", or "" if it changes no bit of
 * a row. */
const char *kv_sequence_profile(const kv_sequence *sequence);
const kv_slot *kv_sequence_slot(const kv_sequence *sequence, int64_t slot); /* NULL: no such slot */
int64_t kv_sequence_length(const kv_sequence *sequence);                    /* published tokens */
int64_t kv_sequence_capacity(const kv_sequence *sequence);                  /* 0: no maximum */

/* Allocates blocks for `total` tokens. A shared block that would be written is replaced by a copy.
 * CAPACITY, NO_MEMORY: the sequence has not changed. */
gqac_status kv_sequence_reserve(kv_sequence *sequence, int64_t total, gqac_diag *diag);
/* Publishes a length, all rows of which were reserved and written. */
void kv_sequence_publish(kv_sequence *sequence, int64_t length);
/* Shortens a sequence to `length` tokens and releases the blocks after it. OUT_OF_RANGE: `length`
 * is negative or larger than the length, or the sequence has no state for it, or lacks rows of a
 * window. */
gqac_status kv_sequence_rewind(kv_sequence *sequence, int64_t length, gqac_diag *diag);
/* Creates a second sequence with the same published rows. A block is shared until one of the
 * sequences writes to it. */
gqac_status kv_sequence_fork(const kv_sequence *sequence, kv_sequence **fork, gqac_diag *diag);

/* Copy rows of one slot between blocks and canonical memory: `rows` is [heads, stride, head_size]
 * in the slot's dtype, and row i of head h begins at element (h * stride + i) * head_size. The
 * positions [position, position + count) must be reserved before they are written, and published or
 * written in this step before they are read. Rows that are not kept (kv_slot.tail, kv_slot.window)
 * read as NaN bytes and are not written. */
void kv_write_rows(kv_sequence *sequence, int slot, int64_t position, int64_t count,
                   const void *rows, int64_t stride);
void kv_read_rows(const kv_sequence *sequence, int slot, int64_t position, int64_t count,
                  void *rows, int64_t stride);
/* The same for one head: rows are [count, head_size]. */
void kv_write_head(kv_sequence *sequence, int slot, int64_t head, int64_t position, int64_t count,
                   const void *rows);
void kv_read_head(const kv_sequence *sequence, int slot, int64_t head, int64_t position,
                  int64_t count, void *rows);
/* Returns the memory of a slot without a tail in the block that holds a reserved position: one head
 * after another, in the layout of kv_slot.columns. NULL: it is not kept (kv_slot.window). It is
 * valid until the sequence reserves, publishes, rewinds or is freed. */
const unsigned char *kv_block_memory(const kv_sequence *sequence, int slot, int64_t position);
/* True if slots with a window have blocks of their own. */
bool kv_sequence_has_windows(const kv_sequence *sequence);
/* The first position of which these slots have rows; 0 where they have no blocks of their own. */
int64_t kv_sequence_kept(const kv_sequence *sequence);
/* The first position of which a later step reads rows of a slot, in a sequence of kind windowed; 0
 * in others. */
int64_t kv_sequence_first(const kv_sequence *sequence, int slot);

/* Returns the number of leading tokens whose rows have neither a NaN nor an infinity, at most the
 * published length. Rows that are not kept, slots with a tail and states are not read, others once.
 */
int64_t kv_sequence_finite(kv_sequence *sequence);

/* Codes. A row x of a head of a coded slot, in a sequence of a quantised kind, is kept as codes and
 * a scale s, and read as code * s. All in fp32, with amax = max |x_d|:
 *   8 bits: s = 2^e, e = the smallest with amax < 127.5 * 2^e, but within the limits below
 *           code_d = round_half_even(x_d * (1 / s)), at most 127 in magnitude
 *   4 bits: s = amax / 7, rounded to 5 significant bits, ties up, but at least the limit below
 *           code_d = round_half_even(x_d * (1 / s)), at most 7 in magnitude
 * With 8 bits, e is in [-126, 121], for f16 in [-24, 9]. With 4 bits, s is at least 2^-126, for f16
 * 2^-20.
 *
 * Then each code * s is a number of the dtype, and quantising it again results in the same code and
 * s. (With 4 bits, some code is 7 or -7 unless s is the limit.) So rows can be exported and
 * imported without loss. A row with a NaN or an infinity has the scale NaN.
 *
 * A block of a slot has the codes of one head after another, each in the layout of kv_slot.columns,
 * then scales [heads][GQAC_KV_BLOCK]. Codes of 8 bits are i8. With 4 bits a byte has code + 8 of
 * two elements, the first in its low half; kv_code_bytes is the size of a run of `size`
 * elements. */
int kv_sequence_code_bits(const kv_sequence *sequence, int slot); /* 8 or 4; 0: not codes */
static inline bool kv_sequence_has_codes(const kv_sequence *sequence, int slot) {
    return kv_sequence_code_bits(sequence, slot) != 0;
}
static inline int64_t kv_code_bytes(int64_t size, int bits) {
    return bits == 4 ? (size + 1) / 2 : size;
}
/* True if two sequences keep the rows of all slots in the same form. */
bool kv_sequences_alike(const kv_sequence *a, const kv_sequence *b);
/* Offset of the scales of a block from its memory, in bytes, for codes of that many bits. */
size_t kv_slot_scales_at(const kv_slot *slot, int bits);

/* Identifies the contents of a block, so that copies of its rows can be recognised, for instance in
 * the memory of a device. Within one version each row of a slot is written at most once, so a copy
 * of written rows stays valid. A block gets a version that no block of the pool had before when it
 * is created, and again when some of its rows are reserved a second time, after a rewind or a
 * failed step. */
typedef struct kv_block_id {
    size_t number;    /* from 0; unique among blocks in use, and reused afterwards */
    uint64_t version; /* from 1 */
    uint64_t before;  /* the block's previous version; 0: none */
    int64_t kept;     /* the first rows, which are the same in both versions */
} kv_block_id;
/* Returns the identity of the block that holds a reserved position. */
kv_block_id kv_block_identity(const kv_sequence *sequence, int64_t position);

/* States. A sequence has a state for its published length and for some earlier lengths, which are
 * multiples of GQAC_KV_BLOCK. (Length 0 has no state, which stands for zeros.) They are chosen so
 * that a rewind to d tokens before the greatest length so far needs at most max(64, 2 d) tokens to
 * be computed again. A state never changes: a step reads the last one and writes new ones, which
 * take its place when the step publishes. */
size_t kv_pool_state_bytes(const kv_pool *pool); /* of one state; 0: no slot is a state */
size_t kv_pool_states_in_use(kv_pool *pool);     /* shared states count once */
int64_t kv_states_most(int64_t length);          /* maximum number for a sequence of that length */
enum { KV_STATES_MOST = 64 };                    /* no sequence keeps more */
/* Maximum number of blocks whose slots with a tail are kept by a sequence of that length. */
int64_t kv_tails_most(const kv_pool *pool, int64_t length);
/* For slots with a window that have blocks of their own: return their bytes in one block (0 if no
 * slot has), and the number of such blocks that a sequence of that length keeps. */
size_t kv_pool_window_bytes(const kv_pool *pool, const kv_kind *kind);
int64_t kv_windows_most(const kv_pool *pool, int64_t length);
/* True if `kept` is possible for kv_sequence_restore: a multiple of GQAC_KV_BLOCK, and no step
 * after that length reads rows of a window before it. */
bool kv_pool_may_keep(const kv_pool *pool, int64_t length, int64_t kept);
/* Returns the length from which a step can continue after a rewind to `length`: without states
 * `length` itself, else the largest length <= `length` that has a state; or 0 if rows of a window
 * before that length are not kept. */
int64_t kv_sequence_reach(const kv_sequence *sequence, int64_t length);
/* Returns the state of a slot at the published length; NULL if that is 0. */
const void *kv_state_last(const kv_sequence *sequence, int slot);
/* After reserve: returns the number of states that the step must write. */
int kv_states_due(const kv_sequence *sequence);
/* Returns the memory of one of them and sets *position to the number of tokens before it. Positions
 * ascend with i; the last state comes after all tokens. */
void *kv_state_due(const kv_sequence *sequence, int slot, int i, int64_t *position);
/* For saving a sequence: returns the number of states that it keeps. */
int kv_states_kept(const kv_sequence *sequence);
/* Returns one of them; positions ascend with i. */
const void *kv_state_kept(const kv_sequence *sequence, int slot, int i);
int64_t kv_state_position(const kv_sequence *sequence, int i); /* number of tokens before it */

/* Images. The blocks and states of a sequence, one after another, as they are in memory: of each
 * block the slots of its part, those with a tail if a state needs them, and those with a window if
 * they are kept apart; then the states. Their bytes depend on the target, and on the version of
 * gqac: see kv_layout_digest. A sequence can read an image in place, which must be aligned to 64
 * bytes and is never written: a block that a step would write is copied, as a shared one is. */
typedef struct kv_image {
    const unsigned char *at; /* what has not been mapped yet */
} kv_image;
/* Sets the bytes of the blocks and of the states in the image of a sequence: `length` tokens,
 * states at n ascending positions, and no rows of windows before `kept`. False: an overflow. */
bool kv_image_bytes(const kv_pool *pool, const kv_kind *kind, int64_t length, int n,
                    const int64_t *positions, int64_t kept, size_t *blocks, size_t *states);
/* Writes the image of a sequence. */
void kv_image_write(const kv_sequence *sequence, unsigned char *image);
/* A digest of where each row of a block lies, and in which form. It is computed from blocks to
 * which known rows were written. NO_MEMORY, CAPACITY. */
gqac_status kv_layout_digest(kv_pool *pool, const kv_kind *kind, unsigned char digest[32],
                             gqac_diag *diag);

/* Like reserve, for an empty sequence that is to be loaded or imported: allocates blocks for
 * `total` tokens, and states at n ascending positions, the last of which is `total`. The caller
 * writes all of them, then publishes. The state at `base` is kept until the sequence is rewound to
 * a length before it; 0: there is no such state. Slots with a tail keep only the rows before these
 * positions; slots with a window, in blocks of their own, none before `kept`. With an image, which
 * must outlive the sequence and all sequences that share blocks with it, only tables are allocated,
 * and the caller writes nothing; the sequence itself must not be extended. */
gqac_status kv_sequence_restore(kv_sequence *sequence, int64_t total, int n,
                                const int64_t *positions, int64_t base, int64_t kept,
                                kv_image *image, gqac_diag *diag);
/* Returns the bytes of the blocks and states of a sequence, and sets *shared to the part that other
 * sequences hold too. */
size_t kv_sequence_bytes(const kv_sequence *sequence, size_t *shared);
/* Returns the number of leading tokens whose blocks both sequences share, a multiple of
 * GQAC_KV_BLOCK; 0 unless one is a fork of the other or both are forks of a third. */
int64_t kv_sequence_common(const kv_sequence *a, const kv_sequence *b);
/* Replaces leading whole blocks of a sequence by those of a donor of the same kind, whose first
 * `length` tokens, and so the bits of their rows, are the same: as many blocks as have all rows
 * that the sequence keeps. */
void kv_sequence_adopt(kv_sequence *sequence, const kv_sequence *donor, int64_t length);

#endif
