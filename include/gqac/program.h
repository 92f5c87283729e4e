/* Programs: models compiled for running, and their properties. A program is immutable, and threads
 * may share it. Lists and texts that these functions return belong to the program. */
#ifndef GQAC_PROGRAM_H
#define GQAC_PROGRAM_H

#include <gqac/options.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_program gqac_program;
/* Compiles a model file (.onnx, .gqac, .gq) for running; the caller frees *program. IO: a file
 * cannot be read; INVALID_MODEL: its content is wrong, or an artefact has a baked prefix of another
 * graph, profile or layout; UNSUPPORTED: *diag names everything that is not supported; LIMIT: the
 * model exceeds a safety limit; USAGE: an option is wrong, or the artefact was made for another
 * target or math; ABSENT: this machine lacks the target; NO_MEMORY; ABORTED: options->monitor ended
 * the call. */
GQAC_API gqac_status gqac_program_open(const char *model, const gqac_options *options,
                                       gqac_program **program, gqac_diag *diag);
GQAC_API void gqac_program_free(gqac_program *program);

typedef struct gqac_io { /* an input or output of the graph */
    size_t size;
    const char *name;
    gqac_dtype dtype;
    int rank;          /* -1: unknown */
    const char *shape; /* "[batch_size,sequence_length]" */
} gqac_io;

/* Sets *inputs or *outputs to the list of graph inputs or outputs and returns its length. In a
 * program for sequences the runtime itself fills these inputs and reads these outputs. */
GQAC_API int gqac_program_inputs(const gqac_program *program, const gqac_io **inputs);
GQAC_API int gqac_program_outputs(const gqac_program *program, const gqac_io **outputs);

typedef struct gqac_kv_pair { /* the cached keys or values, or the state, of one layer */
    size_t size;
    const char *past, *present;
    int64_t heads, head_size; /* 0 in gqac_info if the file's cache does not determine them */
    gqac_dtype dtype;
    int64_t rows; /* 0: one row for each token; else the pair is a state [heads, rows, head_size],
                     which stands for all tokens */
    int64_t tail; /* 0: steps read all rows; else only the last `tail` rows (the inputs of a causal
                     convolution), and export writes zeros for earlier rows */
    /* 0: steps read all rows; else the layer has a sliding window of so many keys, the query's own
     * included. Export of a windowed sequence writes zeros for rows that no later step reads.
     * Always 0 in pairs of gqac_info and of stateless programs. */
    int64_t window;
} gqac_kv_pair;
/* Sets *pairs to the past/present pairs of a program, stateless or not, and returns their number. A
 * past tensor X that holds both keys and values counts as two pairs, X.key and X.value. */
GQAC_API int gqac_program_kv_pairs(const gqac_program *program, const gqac_kv_pair **pairs);
/* Returns the number of rows of a head in the past tensor of a sequence of `length` tokens:
 * pair->rows for a state, else `length`. */
GQAC_API int64_t gqac_kv_pair_rows(const gqac_kv_pair *pair, int64_t length);

typedef struct gqac_mixing { /* a node that mixes the rows of a call */
    size_t size;
    const char *op, *node;
} gqac_mixing;
/* Sets *mixing to the nodes whose results for one token depend on other tokens of the same call
 * (other than through the KV cache), and returns their number. 0: the model is split-safe, that is,
 * results do not depend on how tokens are split into calls. */
GQAC_API int gqac_program_mixing(const gqac_program *program, const gqac_mixing **mixing);

/* True: the program was opened with gqac_options.stateless, for gqac_run; false: it is for
 * sequences. */
GQAC_API bool gqac_program_is_stateless(const gqac_program *program);
/* Size of the vocabulary, the last dimension of the logits; 0: the model does not fix it. */
GQAC_API int64_t gqac_program_vocabulary(const gqac_program *program);
/* Number of elements E of an embedding, for models that take embeddings (inputs_embeds [B,S,E])
 * instead of token ids: see gqac_step_item.embeddings. 0: the model takes ids. */
GQAC_API int64_t gqac_program_embedding_size(const gqac_program *program);
/* Maximum number of tokens in a sequence: the number of rows of the model's smallest table of
 * positions, or the limit `context` if that is less. INT64_MAX: there is neither. */
GQAC_API int64_t gqac_program_max_tokens(const gqac_program *program);
/* Sets *length to the largest length for which a model with LongRoPE uses its table for short
 * contexts; 0: the model has no such threshold. Cached rows cannot be used on both sides of the
 * threshold: see RECOMPUTE in sequence.h. NO_MEMORY; the other errors are those of gqac_step. */
GQAC_API gqac_status gqac_program_rope_threshold(const gqac_program *program, int64_t *length,
                                                 gqac_diag *diag);
/* Bytes in use now that count against gqac_options.memory_budget. A context keeps the memory of its
 * largest call; a sequence holds whole KV blocks. Blocks that a sequence returns can be used by
 * other sequences; they count until all blocks of their slab (at most 8 MiB) have been returned. */
GQAC_API int64_t gqac_program_memory_used(const gqac_program *program);
/* Bytes of all constants, which a call that uses every weight must read. */
GQAC_API int64_t gqac_program_weight_bytes(const gqac_program *program);

/* Memory in bytes for one sequence of `tokens` tokens, whose prompt is computed in chunks of at
 * most `chunk` tokens and whose last tokens are decoded one by one. Activations are the
 * intermediate tensors. A dimension that is known only during a run is assumed to be `tokens`. */
typedef struct gqac_memory {
    size_t size;             /* sizeof(gqac_memory), set by the caller */
    int64_t weights;         /* all constants */
    int64_t kv_block_tokens; /* tokens in a block of the KV cache */
    int64_t kv_block;        /* bytes of one block, all layers */
    int64_t kv_blocks;       /* number of blocks for `tokens` tokens */
    int64_t prefill, decode; /* activations of the largest chunk, and of the last token alone */
    int64_t kv_state;        /* bytes of one state, all recurrent layers; 0: the model has none */
    /* Maximum number of states that are kept: one for the current length, some for earlier lengths,
     * and the one that is written next. States at positions inside a chunk, and the state of
     * imported tokens, are not counted. */
    int64_t kv_states;
    int64_t kv_tail; /* bytes of the inputs of causal convolutions in one block, if only some blocks
                        keep them; else 0, and kv_block includes them */
    int64_t kv_tails; /* maximum number of blocks with such inputs; those of the last chunk are not
                         counted */
    /* Scratch of the kernel that needs the most, for the largest chunk and for the last token, with
     * gqac_threads_default threads, in addition to `prefill` and `decode`. Not counted: targets
     * ref and gpu (0 here), ops of cpu that run by their own eval (convolutions, TopK, Scan, ...),
     * and branches of If. A context may keep up to half as much again, because its buffers grow by
     * at least half. */
    int64_t prefill_scratch, decode_scratch;
    /* Memory of the device, in addition, with target gpu; 0 with others. Activations
     * (device_prefill, device_decode) are all fp32 values of a run, whether or not the device reads
     * them; scratch of device kernels is not counted. */
    int64_t device_weights, device_kv;
    int64_t device_prefill, device_decode;
    /* Kind windowed: bytes of the layers with a window in one block, and the number of blocks that
     * keep rows of these layers (those of the last chunk are not counted). Other kinds: 0, and
     * kv_block includes the bytes. */
    int64_t kv_window, kv_windows;
} gqac_memory;
/* Fills *memory. The caller sets its size first: gqac_memory memory = {.size = sizeof memory}.
 * OUT_OF_RANGE: not 1 <= chunk <= tokens, the model has fewer positions than `tokens`, or a size
 * overflows; USAGE: the program was opened for stateless runs. */
GQAC_API gqac_status gqac_program_memory(const gqac_program *program, int64_t tokens, int64_t chunk,
                                         gqac_memory *memory, gqac_diag *diag);

/* gqac_program_memory for a kind of cache (gqac_sequence_options.kv). USAGE also if the kind is
 * unknown; UNSUPPORTED: the model cannot have it. */
GQAC_API gqac_status gqac_program_memory_of(const gqac_program *program, const char *kv,
                                            int64_t tokens, int64_t chunk, gqac_memory *memory,
                                            gqac_diag *diag);

/* True: the model returns only the logits of the last token of a call. */
GQAC_API bool gqac_program_last_logits(const gqac_program *program);
/* True: rows of several sequences cannot be packed, so steps pad each sequence to the longest. *why
 * then describes the node that prevents packing, and belongs to the program; it is NULL if no
 * single node does. `why` may be NULL. */
GQAC_API bool gqac_program_padding(const gqac_program *program, const gqac_mixing **why);
/* The numerics profile, e.g. "gqac-n1/ref/model/...". For the same model and inputs, equal profiles
 * mean equal bits. Sequences of some kinds have a profile of their own: gqac_sequence_profile. */
GQAC_API const char *gqac_program_profile(const gqac_program *program);
/* Maximum difference of the values of a tensor between two targets, relative to the largest value
 * of the tensor: 1e-4; 2e-2 if the model computes in 16-bit floats or rounds activations to
 * integers, where a tiny difference can change a value by a whole rounding step; 1e-1 with --math
 * bf16, which only some targets use. Equal bits are promised only within one target. */
GQAC_API double gqac_program_tolerance(const gqac_program *program);
/* The instruction set that the program's kernels use ("avx2"); NULL if its target has only one. It
 * changes no bit of any result. */
GQAC_API const char *gqac_program_level(const gqac_program *program);
/* Sets *level to the instruction set that kernels of a target would use. USAGE: there is no such
 * target, or the environment variable GQAC_CPU names no level; ABSENT: this machine lacks the
 * target, or the level that GQAC_CPU names. */
GQAC_API gqac_status gqac_target_level(const char *target, const char **level, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
