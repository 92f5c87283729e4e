/* Sequences, and the step that appends tokens to them. Only one thread at a time may use a
 * sequence. */
#ifndef GQAC_SEQUENCE_H
#define GQAC_SEQUENCE_H

#include <gqac/candidate.h>
#include <gqac/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One conversation: its cached rows, its length and the ids of its tokens. */
typedef struct gqac_sequence gqac_sequence;
typedef struct gqac_sequence_options {
    size_t size;
    /* Kind of cache; spaces around the name are ignored; NULL: contiguous.
     *
     *   contiguous, basic   keeps every row
     *   paged               the same, in blocks that are taken one by one from anywhere in the
     *                       pool, so that freed memory is used again before more is allocated
     *   windowed            in layers with a sliding window, keeps only the rows that are visible
     *                       from the current length, or from one to which it can be rewound
     *   quantised, int8     keeps keys and values as codes of 8 bits, with a profile of its own
     *   quantised4, int4    the same, of 4 bits
     *
     * The first three have the same bits. */
    const char *kv;
    int64_t capacity;     /* maximum number of tokens; 0: as many as fit into memory */
    int64_t final_length; /* the length that the sequence will reach, by which the LongRoPE table is
                             chosen; 0: unknown. Then the first step chooses by its own length, and
                             a later step across the threshold fails with RECOMPUTE */
} gqac_sequence_options;
static inline void gqac_sequence_options_init(gqac_sequence_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}
/* Creates an empty sequence; options NULL: defaults. The caller frees *sequence, before the
 * program. USAGE: the program was opened for stateless runs, or the kind is unknown; UNSUPPORTED:
 * the kind is a quantised one, and the model caches no keys and values of type f32, f16 or bf16;
 * OUT_OF_RANGE: capacity or final_length is negative; NO_MEMORY. */
GQAC_API gqac_status gqac_sequence_create(const gqac_program *program,
                                          const gqac_sequence_options *options,
                                          gqac_sequence **sequence, gqac_diag *diag);
/* The same for a prompt ids[0..n), with cached rows if a prefix of it is baked into the artefact of
 * the program (gqac_program_baked): the sequence begins with the longest such prefix, but at most
 * n-1 tokens, and *reused is its length. *reused is 0 if nothing is baked, for another kind of
 * cache, or for lengths on the other side of a LongRoPE threshold (chosen by final_length, or by n
 * if that is 0); in a model with recurrent states it is a length that has a state. The caller
 * appends the ids from *reused on. OUT_OF_RANGE also if n < 1. */
GQAC_API gqac_status gqac_sequence_begin(const gqac_program *program, const int64_t *ids, int64_t n,
                                         const gqac_sequence_options *options,
                                         gqac_sequence **sequence, int64_t *reused,
                                         gqac_diag *diag);
GQAC_API void gqac_sequence_free(gqac_sequence *sequence);
GQAC_API const gqac_program *gqac_sequence_program(const gqac_sequence *sequence); /* never NULL */
GQAC_API int64_t gqac_sequence_length(const gqac_sequence *sequence);              /* in tokens */
GQAC_API const char *gqac_sequence_kind(const gqac_sequence *sequence); /* "contiguous" */
/* Writes the numerics profile of the sequence's rows and logits to `text`: that of the program,
 * followed by "/kv8" for kind quantised and "/kv4" for quantised4. Returns `text`, cut to `size`
 * bytes with the NUL. */
GQAC_API const char *gqac_sequence_profile(const gqac_sequence *sequence, char *text, size_t size);
/* Describes the sequence in one line, for logs, without cached values and ids: "contiguous, 70
 * tokens, 8 tensors, 73728 bytes". Returns `text`, cut to `size` bytes with the NUL. */
GQAC_API const char *gqac_sequence_describe(const gqac_sequence *sequence, char *text, size_t size);
/* Bytes that the sequence holds in KV blocks, states and ids. *shared is the part that other
 * sequences hold as well, after a fork; `shared` may be NULL. */
GQAC_API size_t gqac_sequence_bytes(const gqac_sequence *sequence, size_t *shared);
/* Returns the *count ids of the tokens from position *first on; NULL if there are none. Tokens
 * before *first were imported, and their ids are unknown. The ids are valid until the next call
 * with the sequence; the `tokens` of that call may point to them. */
GQAC_API const int64_t *gqac_sequence_ids(const gqac_sequence *sequence, int64_t *first,
                                          int64_t *count);
/* Shortens the sequence to its first `length` tokens. If the program has states (see gqac_kv_pair),
 * the next step may have to compute up to max(64, 2 d) tokens again, where d is the greatest length
 * so far minus `length`; imported tokens cannot be computed again, so in such a program a
 * sequence keeps all of them or is shortened to 0. A windowed sequence can be rewound to 0, and to
 * any length at most 64 tokens below its greatest so far; shorter lengths may fail.
 * OUT_OF_RANGE: the sequence has fewer tokens, or cannot be rewound to that length; it has not
 * changed. */
GQAC_API gqac_status gqac_sequence_rewind(gqac_sequence *sequence, int64_t length, gqac_diag *diag);
/* Number of tokens, the last ones of the sequence, that the next step computes again because of a
 * rewind. */
GQAC_API int64_t gqac_sequence_missing(const gqac_sequence *sequence);
/* How many tokens steps have computed in this sequence, those that were computed again included. It
 * begins with 0, also in a fork and in a sequence that was loaded or restored. */
GQAC_API int64_t gqac_sequence_computed(const gqac_sequence *sequence);
/* Creates a second sequence with the same tokens and rows; the caller frees *fork. The two share
 * each block until one of them writes to it. Different threads may use them at the same time.
 * NO_MEMORY. */
GQAC_API gqac_status gqac_sequence_fork(const gqac_sequence *sequence, gqac_sequence **fork,
                                        gqac_diag *diag);

/* Copies the past tensor `name` to `data`, which has a capacity of `bytes` bytes: [heads, rows,
 * head_size] in the pair's dtype, row-major, with zeros in rows that no step reads any more
 * (gqac_kv_pair.tail and window). USAGE: there is no such tensor, or tokens must be computed again
 * after a rewind (the next step does that); INVALID_INPUT: the capacity is too small. */
GQAC_API gqac_status gqac_sequence_export(const gqac_sequence *sequence, const char *name,
                                          void *data, size_t bytes, gqac_diag *diag);
/* Fills an empty sequence with T tokens from past tensors. tensors[i] is the past tensor names[i],
 * of shape [1, heads, T, head_size] (a state: [1, heads, rows, head_size]). All pairs must be
 * given, and at least one must have a row for each token. On failure nothing is imported. USAGE:
 * the sequence has tokens, or a name is unknown, given twice or missing; INVALID_INPUT: wrong type
 * or shape, or T is 0 and a state is not all zeros; UNSUPPORTED: all pairs are states, so T is
 * unknown; CAPACITY: of the sequence or of the memory budget. */
GQAC_API gqac_status gqac_sequence_import(gqac_sequence *sequence, int n, const char *const *names,
                                          const gqac_tensor *tensors, gqac_diag *diag);

/* Saving: a whole sequence is written to memory, with its rows, states, ids, the chosen LongRoPE
 * table, and a checksum. The loaded sequence computes and rewinds like the saved one. It can be
 * loaded into any program opened from the same model with the same options, target and numerics
 * profile, on any machine of the same byte order. A model is identified by its graph and by a
 * digest of all of its weights. The layout may change with the version of gqac; data of another
 * layout are refused.
 *
 * Returns the number of bytes that gqac_sequence_save writes. */
GQAC_API size_t gqac_sequence_save_bytes(const gqac_sequence *sequence);
/* Saves the sequence to `data`, which has a capacity of `bytes` bytes. USAGE: `data` is not aligned
 * to 8 bytes; INVALID_INPUT: the capacity is less than gqac_sequence_save_bytes. */
GQAC_API gqac_status gqac_sequence_save(const gqac_sequence *sequence, void *data, size_t bytes,
                                        gqac_diag *diag);
/* Creates a sequence from saved bytes; the caller frees *sequence, before the program. `data` must
 * be aligned to 8 bytes and must not change during the call. Options are those of
 * gqac_sequence_create, but kv NULL is the saved kind, and another kind must keep the same bits and
 * no row that was not saved; final_length must be 0 or that of the saved sequence, and the new
 * sequence has the latter. INVALID_INPUT: the bytes are incomplete, damaged, or of another layout;
 * USAGE: they are of another model, not aligned, or of another final_length, the program is for
 * stateless runs, or the kind is unknown or does not fit the saved one; OUT_OF_RANGE: capacity or
 * final_length is negative; CAPACITY: of the sequence or of the memory budget; NO_MEMORY. */
GQAC_API gqac_status gqac_sequence_load(const gqac_program *program,
                                        const gqac_sequence_options *options, const void *data,
                                        size_t bytes, gqac_sequence **sequence, gqac_diag *diag);

/* An item of a step: the new tokens of one sequence, and the requested rows of logits. */
typedef struct gqac_step_item {
    size_t size; /* sizeof(gqac_step_item), the same in all items of a call */
    gqac_sequence *sequence;
    const int64_t *tokens; /* count ids */
    int64_t count;         /* at least 1 */
    int64_t n_logits; /* rows of logits that are wanted, those of the last n_logits tokens; 0: none;
                         GQAC_LOGITS_ALL: of every token */
    const int64_t *position; /* the length that the sequence must have now, as a check against
                                tokens that were appended elsewhere; NULL: any */
    const float *embeddings; /* [count, E] if the model takes embeddings (E =
                                gqac_program_embedding_size is not 0), else NULL. They are rounded
                                once to the model's type; `tokens` are then any ids >= 0, which
                                gqac_sequence_ids returns */
    int64_t n_top;  /* 0: gqac_context_logits returns the rows; else gqac_context_top returns, in
                       their place, the n_top likeliest ids of each row. A device then copies only
                       these ids to the host, if all items of the step want no more */
    int64_t drafts; /* how many of the last tokens are drafts, less than `count`. A prefix store
                       (store.h) gets their rows not with this step but with the next one, or when
                       the sequence is freed, unless gqac_sequence_rewind takes them back before */
} gqac_step_item;
enum {
    GQAC_LOGITS_ALL = -1,
    GQAC_TOP_MOST = 1024 /* maximum of n_top */
};

/* Appends tokens to n different sequences in one call. Their pasts and numbers of new tokens may
 * differ; the new rows of all are computed together, without padding (but see
 * gqac_program_padding). The new lengths become visible only when the whole step has succeeded; a
 * failed step leaves every sequence as it was. All items and sequences are checked before anything
 * is computed. On failure diag->index is the item that failed, so that the caller can step the
 * others without it, or -1 if no single item did. If the memory budget is too small (CAPACITY), it
 * is the item for which no memory was left, or -1; the caller can step fewer items, or free a
 * sequence. Errors:
 *   USAGE: n < 1, an item has a wrong size, `tokens` NULL, no sequence or one of another program, a
 *     sequence is given twice, embeddings are missing, or the model does not take them;
 *   OUT_OF_RANGE: an id is not in the vocabulary, `count` is below 1, *position is not the length,
 *     n_logits is not in [-1, count], n_top not in [0, GQAC_TOP_MOST], `drafts` not in [0, count),
 *     or there are more tokens than the model has positions;
 *   CAPACITY: of a sequence or of the memory budget;
 *   RECOMPUTE: the step would cross the LongRoPE threshold with cached rows;
 *   UNSUPPORTED: rows of logits before the last are requested, which the model does not return
 *     (gqac_program_last_logits);
 *   IO: a file of the model was truncated after it was opened;
 *   ABORTED: the context's monitor ended the step.
 */
GQAC_API gqac_status gqac_step(gqac_context *context, int n, const gqac_step_item *items,
                               gqac_diag *diag);
/* A gqac_step with one item that has ids: tokens, count and n_logits as in gqac_step_item. */
GQAC_API gqac_status gqac_sequence_append(gqac_context *context, gqac_sequence *sequence,
                                          const int64_t *tokens, int64_t count, int64_t n_logits,
                                          gqac_diag *diag);
/* Returns the logits of item i of the last step: [*rows, *vocabulary] in fp32; the last row
 * predicts the token that follows the item's last token. They belong to the context and are valid
 * until its next step. NULL if item i requested none or had n_top, after a failed step, and before
 * the first step. *rows and *vocabulary are set if the last step succeeded and had an item i. */
GQAC_API const float *gqac_context_logits(const gqac_context *context, int i, int64_t *rows,
                                          int64_t *vocabulary);

/* Returns what item i of the last step requested instead of logits: for each of *rows rows, *n ids
 * in descending order of their logits, and of equal ones the lowest id first. *n is the largest
 * n_top of the step's items, or the vocabulary if that is smaller. They are valid as long as logits
 * are. NULL if item i had no n_top or requested no rows, after a failed step, and before the first
 * step. */
GQAC_API const gqac_candidate *gqac_context_top(const gqac_context *context, int i, int64_t *rows,
                                                int64_t *n);

#ifdef __cplusplus
}
#endif
#endif
