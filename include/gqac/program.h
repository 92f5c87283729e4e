/* A program: a model that was compiled for running, and its properties. It is immutable and may be
 * shared by threads. Lists and texts that these functions return belong to the program. */
#ifndef GQAC_PROGRAM_H
#define GQAC_PROGRAM_H

#include <gqac/options.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_program gqac_program;
/* Compiles a model (.onnx, .gqac, .gq) for running; the caller frees *program. IO; INVALID_MODEL;
 * UNSUPPORTED (the diag names everything that is not supported); LIMIT; USAGE (an option value, or
 * an artefact made for another target or math); NO_MEMORY; ABORTED (by options->monitor). */
GQAC_API gqac_status gqac_program_open(const char *model, const gqac_options *options,
                                       gqac_program **program, gqac_diag *diag);
GQAC_API void gqac_program_free(gqac_program *program);

typedef struct gqac_io {
    size_t size;
    const char *name;
    gqac_dtype dtype;
    int rank;          /* -1: unknown */
    const char *shape; /* "[batch_size,sequence_length]" */
} gqac_io;

/* Sets *inputs or *outputs to the list of graph inputs or outputs and returns its length. Of a
 * program for sequences these are what the run time feeds and reads. */
GQAC_API int gqac_program_inputs(const gqac_program *program, const gqac_io **inputs);
GQAC_API int gqac_program_outputs(const gqac_program *program, const gqac_io **outputs);

typedef struct gqac_kv_pair {
    size_t size;
    const char *past, *present;
    int64_t heads, head_size;
    gqac_dtype dtype;
    int64_t rows; /* 0: one row for each token; else the rows of a state [heads, rows, head_size] of
                     all tokens */
    int64_t tail; /* 0: all rows are read; else only the last `tail` before the length, and export
                     writes zeros for earlier rows */
} gqac_kv_pair;
/* Sets *pairs to the past/present pairs of a program, also of a stateless one, and returns their
 * number. A past tensor X that holds keys and values is two pairs, X.key and X.value. */
GQAC_API int gqac_program_kv_pairs(const gqac_program *program, const gqac_kv_pair **pairs);
/* Rows in each head of the past tensor of a sequence of `length` tokens: `length`, or the rows of a
 * state. */
GQAC_API int64_t gqac_kv_pair_rows(const gqac_kv_pair *pair, int64_t length);

typedef struct gqac_mixing { /* a node that makes the rows of a call depend on each other */
    size_t size;
    const char *op, *node;
} gqac_mixing;
/* Sets *mixing to the nodes that mix rows and returns their number; 0: the model is split-safe. */
GQAC_API int gqac_program_mixing(const gqac_program *program, const gqac_mixing **mixing);

/* True: opened with gqac_options.stateless, for gqac_run; false: for sequences. */
GQAC_API bool gqac_program_is_stateless(const gqac_program *program);
/* Size of the vocabulary (last dimension of the logits); 0: it is not constant. */
GQAC_API int64_t gqac_program_vocabulary(const gqac_program *program);
/* Elements of an embedding, for models whose sequences are fed embeddings (inputs_embeds [B,S,E])
 * instead of token ids: gqac_step_item.embeddings. 0: the model takes ids. */
GQAC_API int64_t gqac_program_embedding(const gqac_program *program);
/* Maximum of tokens of a sequence, by the rows of position tables; INT64_MAX: none. */
GQAC_API int64_t gqac_program_most_tokens(const gqac_program *program);
/* Sets *length to the maximum length for which a model with LongRoPE tables uses the table of short
 * contexts; 0: it has no such threshold. A sequence does not cross it with cached rows:
 * see RECOMPUTE in sequence.h. */
GQAC_API gqac_status gqac_program_rope_threshold(const gqac_program *program, int64_t *length,
                                                 gqac_diag *diag);
/* Bytes that count against gqac_options.memory_budget now. A context keeps what its largest call
 * needed; sequences hold whole KV blocks. Blocks that a sequence returns can be used by other
 * sequences, and are subtracted here when a slab of blocks (at most 8 MiB) is empty. */
GQAC_API int64_t gqac_program_memory_used(const gqac_program *program);
/* Bytes of all constants: what a call that uses every weight reads. */
GQAC_API int64_t gqac_program_weight_bytes(const gqac_program *program);

/* Memory of one sequence of `tokens` tokens, whose prompt is fed in chunks of at most `chunk`
 * tokens and whose last tokens are decoded one by one. Activations are the buffers of the plan.
 * Lengths that only a run knows are assumed to be `tokens`. Sizes are in bytes. */
typedef struct gqac_memory {
    size_t size;             /* sizeof(gqac_memory), set by the caller */
    int64_t weights;         /* all constants */
    int64_t kv_block_tokens; /* tokens in a block of the KV cache */
    int64_t kv_block;        /* bytes of one block, all layers */
    int64_t kv_blocks;       /* blocks that the tokens need */
    int64_t prefill, decode; /* activations of the largest chunk, and of the last token alone */
    int64_t kv_state;        /* bytes of one state, all recurrent layers; 0: the model has none */
    /* Maximum number of states that are kept: that of the length, some of earlier lengths, and the
     * one that is written next. States that a chunk writes on its way, and that of imported tokens,
     * are not counted. */
    int64_t kv_states;
    int64_t kv_tail;  /* bytes of the inputs of causal convolutions in one block, if they are kept
                         for some lengths only; else 0, and they are in kv_block */
    int64_t kv_tails; /* maximum number of blocks that keep them, without those of the last chunk */
    /* Scratch of the kernel that takes the most, for the largest chunk and for the last token, with
     * gqac_threads_default threads. It is added to `prefill` and `decode`. Not counted are the
     * targets ref and gpu (0 here), ops of cpu that run by their own eval (convolutions, TopK,
     * Scan, ...), and branches of If. A context may keep up to half more, because its buffers grow
     * by half at least. */
    int64_t prefill_scratch, decode_scratch;
    /* What target gpu has in the memory of its device besides; 0 for others. Activations are all
     * fp32 values of a run, whether or not the device reads them; scratch of its kernels is not
     * counted. */
    int64_t device_weights, device_kv;
    int64_t device_prefill, device_decode;
} gqac_memory;
/* Fills *memory but for its size, which the caller sets: gqac_memory memory = {.size = sizeof
 * memory}. OUT_OF_RANGE: not 1 <= chunk <= tokens, the model has fewer positions, or a size
 * overflows; USAGE: the program was opened for stateless runs. */
GQAC_API gqac_status gqac_program_memory(const gqac_program *program, int64_t tokens, int64_t chunk,
                                         gqac_memory *memory, gqac_diag *diag);

/* True: the model returns the logits of the last token of a call only, whatever is asked for. */
GQAC_API bool gqac_program_last_logits(const gqac_program *program);
/* True: steps pad the rows of all sequences to the longest, because rows cannot be packed. *why is
 * the node that prevents packing; its op is NULL if there is no single such node. */
GQAC_API bool gqac_program_padding(const gqac_program *program, gqac_mixing *why);
/* "gqac-n1/ref/model/...": equal profiles mean equal bits. */
GQAC_API const char *gqac_program_profile(const gqac_program *program);
/* How far the values of a tensor may differ between two targets, relative to its largest value:
 * 1e-4; 2e-2 when the model computes in 16-bit floats or rounds activations to integers, where one
 * value that rounds the other way is a whole step; 1e-1 with --math bf16, which only some targets
 * use. Equal bits are promised within one target only. */
GQAC_API double gqac_program_tolerance(const gqac_program *program);
/* The instruction set that the program's kernels use ("avx2"); NULL if its target has one only. It
 * changes no bit: the profile is the same on every level. */
GQAC_API const char *gqac_program_level(const gqac_program *program);
/* The same for a target, without a program. USAGE: no such target, or GQAC_CPU names no level;
 * ABSENT: this machine lacks the target, or the level that GQAC_CPU names. */
GQAC_API gqac_status gqac_target_level(const char *target, const char **level, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
