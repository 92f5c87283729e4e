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
    const char *kv;       /* kind: "contiguous" (alias "basic"); NULL: contiguous */
    int64_t capacity;     /* most tokens; 0: no bound but memory */
    int64_t final_length; /* length the sequence will reach: picks the LongRoPE table; 0: not known,
                             the first step picks and crossing the threshold is RECOMPUTE */
} gqac_sequence_options;
/* The program must have been opened for sequences and outlives them. */
GQAC_API gqac_status gqac_sequence_create(const gqac_program *program,
                                          const gqac_sequence_options *options,
                                          gqac_sequence **sequence, gqac_diag *diag);
GQAC_API void gqac_sequence_free(gqac_sequence *sequence);
GQAC_API const gqac_program *gqac_sequence_program(const gqac_sequence *sequence);
GQAC_API int64_t gqac_sequence_length(const gqac_sequence *sequence);
GQAC_API const char *gqac_sequence_kind(const gqac_sequence *sequence); /* "contiguous" */
/* Keeps the first `length` tokens. OUT_OF_RANGE when there are fewer. In a program with states (see
 * gqac_kv_pair) it may be that the next step computes up to max(64, 2 d) tokens again, d those
 * between the greatest length so far and this one; among imported tokens it can only be rewound to
 * 0 or to all of them. */
GQAC_API gqac_status gqac_sequence_rewind(gqac_sequence *sequence, int64_t length, gqac_diag *diag);
/* A second sequence with the same rows; blocks are shared until one of them writes. */
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

/* New tokens of one sequence in a step, and which rows of logits are wanted. */
typedef struct gqac_step_item {
    size_t size; /* sizeof(gqac_step_item), the same in all items of a call */
    gqac_sequence *sequence;
    const int64_t *tokens;   /* count ids */
    int64_t count;           /* at least 1 */
    int64_t n_logits;        /* rows of logits: behind the last n_logits of the tokens; 0: none;
                                GQAC_LOGITS_ALL: behind each of them */
    const int64_t *position; /* NULL, or the length that the sequence must have */
} gqac_step_item;
enum { GQAC_LOGITS_ALL = -1 };

/* Appends tokens to n different sequences in one call. Any mixture of lengths and pasts is allowed,
 * and the rows of all are computed together, without padding (but see gqac_program_padding). New
 * lengths become visible only when the whole step succeeded: a failed step leaves every sequence as
 * it was. Everything that can be told from items and sequences is checked before anything runs;
 * diag->index is the item at fault, so that the others can be stepped without it, or -1.
 * USAGE (the size or sequence of an item, a sequence given twice, n < 1); OUT_OF_RANGE (ids,
 * positions, rows of logits, tables of positions); CAPACITY; RECOMPUTE (LongRoPE threshold);
 * UNSUPPORTED (more than the last row of a model that gives no other: gqac_program_last_logits). */
GQAC_API gqac_status gqac_step(gqac_context *context, int n, const gqac_step_item *items,
                               gqac_diag *diag);
/* A step of one sequence: n_logits as in gqac_step_item. */
GQAC_API gqac_status gqac_sequence_append(gqac_context *context, gqac_sequence *sequence,
                                          const int64_t *tokens, int64_t count, int64_t n_logits,
                                          gqac_diag *diag);
/* Logits of item i of the last step: [*rows, *vocabulary] fp32, the last row is what follows its
 * last token. Owned by the context, valid until its next call; NULL where none were asked for, and
 * before the first step. */
GQAC_API const float *gqac_context_logits(const gqac_context *context, int i, int64_t *rows,
                                          int64_t *vocabulary);

#ifdef __cplusplus
}
#endif
#endif
