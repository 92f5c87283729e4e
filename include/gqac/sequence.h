/* Sequences: conversations whose cached rows a program keeps, and the step that appends to them. A
 * sequence belongs to one thread at a time. */
#ifndef GQAC_SEQUENCE_H
#define GQAC_SEQUENCE_H

#include <gqac/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One conversation: its cached rows, its length and the ids of its tokens. */
typedef struct gqac_sequence gqac_sequence;
typedef struct gqac_sequence_options {
    size_t size;
    const char *kv;       /* kind: "contiguous" (alias "basic"); NULL: contiguous */
    int64_t capacity;     /* maximum number of tokens; 0: as many as fit into memory */
    int64_t final_length; /* the length that the sequence will reach, which chooses the LongRoPE
                             table; 0: unknown, the first step chooses, and crossing the threshold
                             later is RECOMPUTE */
} gqac_sequence_options;
static inline void gqac_sequence_options_init(gqac_sequence_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}
/* Creates an empty sequence; options NULL: defaults; the caller frees *sequence. The program must
 * outlive it. USAGE: the program was opened for stateless runs, or an unknown kind; OUT_OF_RANGE: a
 * negative capacity or length; NO_MEMORY. */
GQAC_API gqac_status gqac_sequence_create(const gqac_program *program,
                                          const gqac_sequence_options *options,
                                          gqac_sequence **sequence, gqac_diag *diag);
GQAC_API void gqac_sequence_free(gqac_sequence *sequence);
GQAC_API const gqac_program *gqac_sequence_program(const gqac_sequence *sequence);
GQAC_API int64_t gqac_sequence_length(const gqac_sequence *sequence);
GQAC_API const char *gqac_sequence_kind(const gqac_sequence *sequence); /* "contiguous" */
/* Writes one line about the sequence for logs, and never a number that is cached: "contiguous, 70
 * tokens, 8 tensors, 73728 bytes". Returns `text`; what does not fit in `size` bytes is cut. */
GQAC_API const char *gqac_sequence_text(const gqac_sequence *sequence, char *text, size_t size);
/* Bytes that the sequence holds in KV blocks, states and ids. *shared is the part that other
 * sequences hold as well, after a fork; `shared` may be NULL. */
GQAC_API size_t gqac_sequence_bytes(const gqac_sequence *sequence, size_t *shared);
/* The ids of the tokens from position *first on, *count ids; NULL if there are none. Tokens before
 * *first were imported, and their ids are unknown. Valid until the next call with the sequence,
 * to which they may be passed as tokens. */
GQAC_API const int64_t *gqac_sequence_ids(const gqac_sequence *sequence, int64_t *first,
                                          int64_t *count);
/* Keeps the first `length` tokens. OUT_OF_RANGE: the sequence has fewer. In a program with states
 * (see gqac_kv_pair) the next step may compute up to max(64, 2 d) tokens again, where d is the
 * greatest length so far minus `length`; and if length is less than the number of imported tokens,
 * it must be 0. */
GQAC_API gqac_status gqac_sequence_rewind(gqac_sequence *sequence, int64_t length, gqac_diag *diag);
/* How many of the last tokens of the sequence the next step computes again, after a rewind. */
GQAC_API int64_t gqac_sequence_missing(const gqac_sequence *sequence);
/* Creates a second sequence with the same tokens and rows; the caller frees *fork. Both share
 * blocks until one writes to them. They may be used by different threads. */
GQAC_API gqac_status gqac_sequence_fork(const gqac_sequence *sequence, gqac_sequence **fork,
                                        gqac_diag *diag);

/* Copies the past tensor `name` to `data`: [heads, rows, head_size] in the pair's dtype, row-major,
 * with zeros in rows that are not read again (gqac_kv_pair.tail); `bytes` is the capacity of
 * `data`. USAGE: no such tensor, or the sequence was rewound and has tokens that must be computed
 * again (a step does that); INVALID_INPUT: the capacity is too small. */
GQAC_API gqac_status gqac_sequence_export(const gqac_sequence *sequence, const char *name,
                                          void *data, size_t bytes, gqac_diag *diag);
/* Fills an empty sequence. tensors[i] is the past tensor names[i], of shape [1, heads, T,
 * head_size], with the same T for all that are not states. All pairs must be given, and at least
 * one must have a row for each token. Everything is imported, or nothing. USAGE: the sequence has
 * tokens, or a name is unknown, given twice or missing; INVALID_INPUT: type or shape, or T is 0 and
 * a state is not all zeros; UNSUPPORTED: all pairs are states; CAPACITY. */
GQAC_API gqac_status gqac_sequence_import(gqac_sequence *sequence, int n, const char *const *names,
                                          const gqac_tensor *tensors, gqac_diag *diag);

/* Saves a whole sequence to memory: rows, states, ids, the choice of rope tables, and a checksum. A
 * sequence that is loaded computes and rewinds like the one that was saved. It can be loaded into
 * any program opened from the same model with the same options, target and numerics profile, on any
 * machine of the same byte order. The graph and samples of the weights identify the model: models
 * that differ in other weights only count as the same. The layout may change with the version of
 * gqac; what another version saved is refused.
 *
 * This returns the number of bytes that gqac_sequence_save writes. */
GQAC_API size_t gqac_sequence_save_bytes(const gqac_sequence *sequence);
/* Writes gqac_sequence_save_bytes bytes to `data`, which has `bytes`. USAGE: `data` is not aligned
 * to 8 bytes; INVALID_INPUT: `bytes` is too small. */
GQAC_API gqac_status gqac_sequence_save(const gqac_sequence *sequence, void *data, size_t bytes,
                                        gqac_diag *diag);
/* Creates a sequence from saved bytes; the caller frees *sequence. `data` must be aligned to 8
 * bytes and must not change during the call. Options as in gqac_sequence_create; final_length is 0
 * or that of the saved sequence, which the new one has too. INVALID_INPUT: the bytes are
 * incomplete, changed, or of another version; USAGE: another model, wrong alignment, another final
 * length, a program without sequences, an unknown kind; OUT_OF_RANGE: a negative capacity or
 * length; CAPACITY; NO_MEMORY. */
GQAC_API gqac_status gqac_sequence_load(const gqac_program *program,
                                        const gqac_sequence_options *options, const void *data,
                                        size_t bytes, gqac_sequence **sequence, gqac_diag *diag);

/* An item of a step: the new tokens of one sequence, and the rows of logits that are wanted. */
typedef struct gqac_step_item {
    size_t size; /* sizeof(gqac_step_item), the same in all items of a call */
    gqac_sequence *sequence;
    const int64_t *tokens; /* count ids */
    int64_t count;         /* at least 1 */
    int64_t n_logits; /* rows of logits, for the last n_logits tokens; 0: none; GQAC_LOGITS_ALL: for
                         every token */
    const int64_t *position; /* the length that the sequence must have now; NULL: any */
    const float *embeddings; /* [count, gqac_program_embedding] where that is not 0, else NULL. They
                                are computed, rounded once to the model's type; `tokens` are then
                                any ids >= 0 by which the caller knows them */
} gqac_step_item;
enum { GQAC_LOGITS_ALL = -1 };

/* Appends tokens to n different sequences in one call. Lengths and pasts may differ; the rows of
 * all are computed together, without padding (but see gqac_program_padding). New lengths become
 * visible only when the whole step has succeeded: a failed step leaves every sequence as it was.
 * Items and sequences are checked before new tokens are computed; diag->index is the item that
 * failed, so that the others can be stepped without it, or -1. When the memory budget is too small
 * (CAPACITY), `index` is the item for which no memory was left, or -1; step fewer items, or free a
 * sequence. Errors:
 *   USAGE: the size or sequence of an item, a sequence given twice, n < 1, embeddings that are
 *     missing or that the model does not take;
 *   OUT_OF_RANGE: ids, positions, rows of logits, capacity of position tables;
 *   CAPACITY: of a sequence or of the memory budget;
 *   RECOMPUTE: the LongRoPE threshold;
 *   UNSUPPORTED: more than the last row, which gqac_program_last_logits rules out;
 *   ABORTED: by the monitor of the context.
 */
GQAC_API gqac_status gqac_step(gqac_context *context, int n, const gqac_step_item *items,
                               gqac_diag *diag);
/* A step of one sequence that is fed ids: n_logits as in gqac_step_item. */
GQAC_API gqac_status gqac_sequence_append(gqac_context *context, gqac_sequence *sequence,
                                          const int64_t *tokens, int64_t count, int64_t n_logits,
                                          gqac_diag *diag);
/* Logits of item i of the last step: [*rows, *vocabulary] in fp32, where the last row predicts the
 * token after the item's last. Owned by the context, valid until its next step. NULL if item i
 * asked for none, after a failed step, and before the first step; *rows and *vocabulary are set if
 * the last step succeeded and had an item i. */
GQAC_API const float *gqac_context_logits(const gqac_context *context, int i, int64_t *rows,
                                          int64_t *vocabulary);

#ifdef __cplusplus
}
#endif
#endif
