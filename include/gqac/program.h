/* A program: a model that was compiled for running, and what it tells of itself. It is immutable
 * and may be shared by threads. */
#ifndef GQAC_PROGRAM_H
#define GQAC_PROGRAM_H

#include <gqac/options.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_program gqac_program;
/* Compiles MODEL (.onnx, .gqac, .gq) for running. IO, INVALID_MODEL, UNSUPPORTED (names all),
 * LIMIT, USAGE (an option value, or an artefact made for another target or math). */
GQAC_API gqac_status gqac_program_open(const char *model, const gqac_options *options,
                                       gqac_program **program, gqac_diag *diag);
GQAC_API void gqac_program_free(gqac_program *program);

typedef struct gqac_io {
    size_t size;
    const char *name;
    gqac_dtype dtype;
    int rank;          /* -1: not known */
    const char *shape; /* "[batch_size,sequence_length]" */
} gqac_io;

/* Graph inputs and outputs of a stateless program, or of a sequence program as the run time sees
 * them. */
GQAC_API int gqac_program_inputs(const gqac_program *program, const gqac_io **inputs);
GQAC_API int gqac_program_outputs(const gqac_program *program, const gqac_io **outputs);

typedef struct gqac_kv_pair {
    size_t size;
    const char *past, *present;
    int64_t heads, head_size;
    gqac_dtype dtype;
    int64_t rows; /* 0: one a token. Else a state [heads, rows, head_size] of all tokens together */
} gqac_kv_pair;
/* Past tensors of a program, one for each past/present pair; of a stateless one too. A past that
 * holds keys and values in one tensor X is two pairs, X.key and X.value. */
GQAC_API int gqac_program_kv_pairs(const gqac_program *program, const gqac_kv_pair **pairs);
/* Rows a head of the past tensor of a sequence of `length` tokens: those of a state, or `length`.
 */
GQAC_API int64_t gqac_kv_pair_rows(const gqac_kv_pair *pair, int64_t length);

typedef struct gqac_mixing { /* a node that makes rows of one call depend on each other */
    size_t size;
    const char *op, *node;
} gqac_mixing;
/* Nodes that mix rows; 0: split-safe. */
GQAC_API int gqac_program_mixing(const gqac_program *program, const gqac_mixing **mixing);

/* Was it opened with gqac_options.stateless: for gqac_run, not for sequences? */
GQAC_API bool gqac_program_is_stateless(const gqac_program *program);
/* Size of the vocabulary (last dimension of the logits), 0 when it is not constant. */
GQAC_API int64_t gqac_program_vocabulary(const gqac_program *program);
/* Tokens that a sequence can have at most, because tables of positions have so many rows;
 * INT64_MAX: no table bounds them. */
GQAC_API int64_t gqac_program_most_tokens(const gqac_program *program);
/* Where a model with LongRoPE tables changes from one to another: *length is that of the longest
 * sequence that is rotated with the first one, 0 when there is no such change. A sequence does not
 * go beyond it with cached rows: see RECOMPUTE in sequence.h. */
GQAC_API gqac_status gqac_program_rope_threshold(const gqac_program *program, int64_t *length,
                                                 gqac_diag *diag);
/* Bytes that count against gqac_options.memory_budget now. Contexts keep what their largest call
 * needed, sequences whole KV blocks; what a sequence gives back other sequences can take, and it
 * comes off here when a slab of blocks (8 MiB at most) is empty. */
GQAC_API int64_t gqac_program_memory_used(const gqac_program *program);
/* Bytes of all constants: what a call that uses every weight reads of them. */
GQAC_API int64_t gqac_program_weight_bytes(const gqac_program *program);

/* Memory of one sequence of `tokens` tokens, the last of them decoded one by one behind a prompt
 * fed in pieces of at most `chunk` tokens. Activations are the buffers of the plan, without what
 * kernels take for themselves. Lengths that only a run knows are taken to be `tokens`. */
typedef struct gqac_memory {
    size_t size;             /* set by the caller */
    int64_t weights;         /* all constants */
    int64_t kv_block_tokens; /* tokens a block of the KV cache */
    int64_t kv_block;        /* bytes of one, all layers */
    int64_t kv_blocks;       /* blocks for the tokens */
    int64_t prefill,
        decode;        /* activations of the largest piece, and of one token behind the rest */
    int64_t kv_state;  /* bytes of one state of recurrent layers, all of them; 0: there are none */
    int64_t kv_states; /* kept for the tokens: of all, of some earlier lengths, and the next;
                          besides those that a piece in hand writes, and one of imported tokens */
} gqac_memory;
/* *memory is filled, but for its size, which the caller sets: gqac_memory memory = {.size = sizeof
 * memory}. OUT_OF_RANGE unless 1 <= chunk <= tokens, when the model has fewer positions, or when a
 * size overflows; USAGE when the program was opened for stateless runs. */
GQAC_API gqac_status gqac_program_memory(const gqac_program *program, int64_t tokens, int64_t chunk,
                                         gqac_memory *memory, gqac_diag *diag);

/* Does the model give logits of the last token of a call alone, whatever is asked for? */
GQAC_API bool gqac_program_last_logits(const gqac_program *program);
/* Do steps of the program pad the rows of all sequences to the longest, because they cannot be
 * packed? *why is the node that forbids it; op NULL where no single node does. */
GQAC_API bool gqac_program_padding(const gqac_program *program, gqac_mixing *why);
/* "gqac-n1/ref/model/...": equal profiles give equal bits. */
GQAC_API const char *gqac_program_profile(const gqac_program *program);
/* How far the values of a tensor may differ between two targets, relative to the largest of them:
 * 1e-4, but 2e-2 when the model computes in 16-bit floats or rounds activations to integers, where
 * one value that rounds the other way is a whole step, and 1e-1 with --math bf16, which one target
 * may make use of and the other not. The same bits are promised on one target only. */
GQAC_API double gqac_program_tolerance(const gqac_program *program);
/* The instruction set that the program's kernels use ("avx2"); NULL when its target has one form
 * only. It changes no bit: the profile is the same on every level. */
GQAC_API const char *gqac_program_level(const gqac_program *program);
/* The same for a target before there is a program. USAGE: no such target, or GQAC_CPU names no
 * level; ABSENT: this machine lacks the target or the level that GQAC_CPU names. */
GQAC_API gqac_status gqac_target_level(const char *target, const char **level, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
