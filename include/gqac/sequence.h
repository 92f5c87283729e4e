/* Sequences: conversations whose cached rows a program keeps, and the step that appends to them. A
 * sequence belongs to one thread at a time. */
#ifndef GQAC_SEQUENCE_H
#define GQAC_SEQUENCE_H

#include <gqac/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One conversation: its KV rows and position. */
typedef struct gqac_sequence gqac_sequence;
typedef struct gqac_sequence_options {
    size_t size;
    const char *kv;       /* kind: "contiguous" (alias "basic"); NULL: contiguous */
    int64_t capacity;     /* most tokens; 0: no bound but memory */
    int64_t final_length; /* length the sequence will reach: picks the LongRoPE table; 0: not known,
                             the first step picks and crossing the threshold is RECOMPUTE */
} gqac_sequence_options;
static inline void gqac_sequence_options_init(gqac_sequence_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}
/* The program must have been opened for sequences and outlives them. */
GQAC_API gqac_status gqac_sequence_create(const gqac_program *program,
                                          const gqac_sequence_options *options,
                                          gqac_sequence **sequence, gqac_diag *diag);
GQAC_API void gqac_sequence_free(gqac_sequence *sequence);
GQAC_API const gqac_program *gqac_sequence_program(const gqac_sequence *sequence);
GQAC_API int64_t gqac_sequence_length(const gqac_sequence *sequence);
GQAC_API const char *gqac_sequence_kind(const gqac_sequence *sequence); /* "contiguous" */
/* Bytes that the sequence holds in KV blocks, states and ids. *shared, which may be NULL: of those,
 * what other sequences hold as well, after a fork. */
GQAC_API size_t gqac_sequence_bytes(const gqac_sequence *sequence, size_t *shared);
/* The ids of its tokens from position *first on, *count of them, NULL when there are none; tokens
 * before *first were imported, and their ids are not known. Valid until the next call with the
 * sequence, which may be a step that is given these ids as tokens. */
GQAC_API const int64_t *gqac_sequence_ids(const gqac_sequence *sequence, int64_t *first,
                                          int64_t *count);
/* Keeps the first `length` tokens. OUT_OF_RANGE when there are fewer. In a program with states (see
 * gqac_kv_pair) it may be that the next step computes up to max(64, 2 d) tokens again, d those
 * between the greatest length so far and this one; among imported tokens it can only be rewound to
 * 0 or to all of them. */
GQAC_API gqac_status gqac_sequence_rewind(gqac_sequence *sequence, int64_t length, gqac_diag *diag);
/* A second sequence with the same rows; blocks are shared until one of them writes. The two may be
 * used by different threads. */
GQAC_API gqac_status gqac_sequence_fork(const gqac_sequence *sequence, gqac_sequence **fork,
                                        gqac_diag *diag);

/* Copies the past tensor `name` to `data`: [heads, rows, head_size] in the pair's dtype, row-major;
 * `bytes` is the room there. USAGE: no such tensor, or the sequence was rewound and has tokens that
 * are not computed again yet (a step comes first); INVALID_INPUT: too little room. */
GQAC_API gqac_status gqac_sequence_export(const gqac_sequence *sequence, const char *name,
                                          void *data, size_t bytes, gqac_diag *diag);
/* Fills an empty sequence: tensors[i] is the past tensor names[i], [1, heads, T, head_size] with
 * the same T for all but states; all pairs must be given, and one with a row for each token. Either
 * everything is taken or nothing. USAGE: the sequence has tokens, a name is unknown, given twice or
 * missing; INVALID_INPUT: type or shape, or T is 0 and a state has a bit that is not 0;
 * UNSUPPORTED: all pairs are states; CAPACITY. */
GQAC_API gqac_status gqac_sequence_import(gqac_sequence *sequence, int n, const char *const *names,
                                          const gqac_tensor *tensors, gqac_diag *diag);

/* A whole sequence in one piece of memory: rows, states, ids and the choice of rope tables, with
 * checksum. A sequence that is loaded computes and rewinds like the one that was saved. It loads
 * into any program opened from the same model with the same options, target and numerics profile,
 * on any machine of the same byte order. Its graph and samples of its weights decide whether a
 * model is the same: models that differ outside of the samples alone are not told apart. The layout
 * may change with the version of gqac; what another version wrote is refused. */
GQAC_API size_t gqac_sequence_save_bytes(const gqac_sequence *sequence);
/* Writes gqac_sequence_save_bytes bytes to `data`; INVALID_INPUT: the room is smaller. */
GQAC_API gqac_status gqac_sequence_save(const gqac_sequence *sequence, void *data, size_t bytes,
                                        gqac_diag *diag);
/* Makes a sequence of what was saved. `data` is aligned to 8 bytes and does not change during the
 * call. Options as in gqac_sequence_create; final_length is 0 or that of the saved sequence, which
 * the new one gets. INVALID_INPUT: cut off, changed, or of another version; USAGE: of another
 * model, alignment, another final length, a program without sequences, an unknown kind;
 * OUT_OF_RANGE: a negative capacity or length; CAPACITY; NO_MEMORY. */
GQAC_API gqac_status gqac_sequence_load(const gqac_program *program,
                                        const gqac_sequence_options *options, const void *data,
                                        size_t bytes, gqac_sequence **sequence, gqac_diag *diag);

/* New tokens of one sequence in a step, and which rows of logits are wanted. */
typedef struct gqac_step_item {
    size_t size; /* sizeof(gqac_step_item), the same in all items of a call */
    gqac_sequence *sequence;
    const int64_t *tokens;   /* count ids */
    int64_t count;           /* at least 1 */
    int64_t n_logits;        /* rows of logits: after each of the last n_logits tokens; 0: none;
                                GQAC_LOGITS_ALL: after every token */
    const int64_t *position; /* NULL, or the length that the sequence must have */
    const float *embeddings; /* [count, gqac_program_embedding] where that is not 0, else NULL. They
                                are what is computed, rounded once to the model's type; `tokens` are
                                then any ids >= 0 by which the caller knows them */
} gqac_step_item;
enum { GQAC_LOGITS_ALL = -1 };

/* Appends tokens to n different sequences in one call. Any mixture of lengths and pasts is allowed,
 * and the rows of all are computed together, without padding (but see gqac_program_padding). New
 * lengths become visible only when the whole step succeeded: a failed step leaves every sequence as
 * it was. Everything that can be told from items and sequences is checked before new tokens are
 * computed; diag->index is the item at fault, so that the others can be stepped without it, or -1.
 * CAPACITY of the memory budget is nobody's fault: `index` is the item that found no room, or -1;
 * step fewer items, or free a sequence.
 * USAGE (the size or sequence of an item, a sequence given twice, n < 1, embeddings that are
 * missing or that the model does not take); OUT_OF_RANGE (ids, positions, rows of logits, tables of
 * positions); CAPACITY; RECOMPUTE (LongRoPE threshold); UNSUPPORTED (more than the last row of a
 * model that gives no other: gqac_program_last_logits); ABORTED (by the monitor of the context). */
GQAC_API gqac_status gqac_step(gqac_context *context, int n, const gqac_step_item *items,
                               gqac_diag *diag);
/* A step of one sequence that is fed ids: n_logits as in gqac_step_item. */
GQAC_API gqac_status gqac_sequence_append(gqac_context *context, gqac_sequence *sequence,
                                          const int64_t *tokens, int64_t count, int64_t n_logits,
                                          gqac_diag *diag);
/* Logits of item i of the last step: [*rows, *vocabulary] fp32, the last row is what follows its
 * last token. Owned by the context, valid until its next step. NULL when item i asked for none,
 * after a step that failed and before the first; *rows and *vocabulary are set when there is such
 * an item. */
GQAC_API const float *gqac_context_logits(const gqac_context *context, int i, int64_t *rows,
                                          int64_t *vocabulary);

#ifdef __cplusplus
}
#endif
#endif
