/* gqac: compile an exported ONNX language model and run it, with the same bits however the tokens
 * are split, batched, threaded or cached.
 *
 *   gqac_program *program;  gqac_context *context;  gqac_sequence *sequence;  gqac_diag diag;
 *   gqac_options options;
 *   gqac_options_init(&options);
 *   gqac_program_open("model.onnx", &options, &program, &diag);
 *   gqac_context_create(program, 1, &context, &diag);
 *   gqac_sequence_create(program, NULL, &sequence, &diag);
 *   gqac_step(context, 1, &sequence, ids, &count, NULL, &diag);
 *   const float *logits = gqac_context_logits(context, 0, &rows, &vocabulary);
 *
 * Handles are opaque. Every pointer that a create/open call returns is owned by the caller and
 * freed by the matching free call; free calls accept NULL. A program is immutable and may be shared
 * by threads; a context and a sequence belong to one thread at a time. Nothing here prints or
 * exits. */
#ifndef GQAC_GQAC_H
#define GQAC_GQAC_H

#include <gqac/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" */
GQAC_API const char *gqac_version(void);

/* ---- compiling ----------------------------------------------------------- */

/* Told after each pass that ran, "import" first. `text` prints the graph then; see
 * gqac_pass_text.*/
typedef struct gqac_pass_event {
    const char *pass;
    double seconds;
    const void *module; /* for gqac_pass_text; valid during the call only */
} gqac_pass_event;
typedef void gqac_pass_callback(void *arg, const gqac_pass_event *event);
/* Text IR (docs/ir.md) of the graph of an event, to be freed with gqac_release; NULL when memory is
 * short. */
GQAC_API char *gqac_pass_text(const gqac_pass_event *event);
/* Frees memory that a call returned for the caller to free; NULL is fine. */
GQAC_API void gqac_release(void *memory);

/* A graph input or output that is known here by another name: the model's `file_name` stands for
 * `name` ("input_ids", "logits", "past_key_values.0.key", ...). */
typedef struct gqac_io_name {
    const char *file_name, *name;
} gqac_io_name;

/* A file that travels in an artefact. */
typedef struct gqac_attachment {
    const char *name; /* plain: no '/', at most 100 bytes */
    const void *data;
    size_t bytes;
} gqac_attachment;

typedef struct gqac_options {
    const char *target;     /* "cpu" (default) or "ref" */
    const char *math;       /* "model", "exact" or "bf16" */
    const char *seqlens_k;  /* "total-1" (ONNX Runtime) or "cached" (MIGraphX prefix caching) */
    bool legacy_window;     /* local_window_size W shows W+1 keys (ONNX Runtime before 2025-09) */
    bool per_row_quant;     /* DynamicQuantizeLinear by row: approximate, but split-safe */
    bool stateless;         /* past and present stay explicit, for gqac_run; else sequences */
    const char *model_root; /* folder external data must lie beneath; NULL: the model's own */
    const char *stop_after; /* pass name, NULL: all (a program cannot be made then) */
    const char *const *disable; /* pass names, ends with NULL; NULL: none */
    gqac_pass_callback *after;  /* may be NULL */
    void *after_arg;
    int n_io_names; /* renamed before the first pass, but not in artefacts and ONNX files, which
                       keep the model's names. A name that the model does not have is skipped */
    const gqac_io_name *io_names;
    int n_attachments; /* for gqac_compile to an artefact */
    const gqac_attachment *attachments;
} gqac_options;
GQAC_API void gqac_options_init(gqac_options *options);

/* Name and one-line summary of pass `index` (from 0, in order); false when there are no more. */
GQAC_API bool gqac_pass_at(int index, const char **name, const char **summary);

typedef struct gqac_program gqac_program;
/* Compiles MODEL (.onnx, .gqac, .gq) for running. IO, INVALID_MODEL, UNSUPPORTED (names all),
 * LIMIT, USAGE (an option value, or an artefact made for another target or math). */
GQAC_API gqac_status gqac_program_open(const char *model, const gqac_options *options,
                                       gqac_program **program, gqac_diag *diag);
GQAC_API void gqac_program_free(gqac_program *program);

typedef enum gqac_emit { GQAC_EMIT_NONE, GQAC_EMIT_GQAC, GQAC_EMIT_ONNX, GQAC_EMIT_TEXT } gqac_emit;
/* Runs the passes up to options->stop_after (for an artefact: up to tidy, and then checks that the
 * rest succeeds) and writes the graph to `path`, whole or not at all. NONE runs and writes nothing.
 * The artefact keeps the tidied graph, the weights, target, math, numerics profile and the SHA-256
 * of the model and its external data. */
GQAC_API gqac_status gqac_compile(const char *model, const gqac_options *options, gqac_emit emit,
                                  const char *path, gqac_diag *diag);

/* Name and one-line summary of rewrite `index` (from 0); false when there are no more. */
GQAC_API bool gqac_rewrite_at(int index, const char **name, const char **summary);
typedef struct gqac_rewritten {
    int64_t changes;     /* 0: the graph is as it was */
    const char *counted; /* what they are: "attention nodes have a cache now" */
    int n_files;         /* that were written */
    const char *const *files;
} gqac_rewritten;
/* Rewrites an ONNX model (or .gq text) as ONNX: rewrite `name` of the file `model` to `path`, or,
 * for a rewrite that makes several, to "<path less .onnx>.<part>.onnx". `path` may be the model
 * itself if its weights lie in it; then a rewrite that changes nothing leaves it untouched.
 * *done is freed with gqac_release. USAGE (no such rewrite, an artefact, a path that would destroy
 * weights of the model); UNSUPPORTED when the model has nothing to rewrite, or not all of it can
 * be; else as gqac_compile. */
GQAC_API gqac_status gqac_rewrite(const char *model, const char *name, const gqac_options *options,
                                  const char *path, gqac_rewritten **done, gqac_diag *diag);

/* ---- looking at a model -------------------------------------------------- */

typedef struct gqac_io {
    const char *name;
    gqac_dtype dtype;
    int rank;          /* -1: not known */
    const char *shape; /* "[batch_size,sequence_length]" */
} gqac_io;
typedef struct gqac_op_use {
    const char *op; /* "com.microsoft.GroupQueryAttention" */
    int count;
} gqac_op_use;
typedef struct gqac_unsupported {
    const char *op, *reason;
    int count;         /* nodes */
    const char *first; /* name of the first one */
} gqac_unsupported;
typedef struct gqac_kv_pair {
    const char *past, *present;
    int64_t heads, head_size;
    gqac_dtype dtype;
    int64_t rows; /* 0: one a token. Else a state [heads, rows, head_size] of all tokens together */
} gqac_kv_pair;
typedef struct gqac_mixing { /* a node that makes rows of one call depend on each other */
    const char *op, *node;
} gqac_mixing;

typedef struct gqac_raised { /* a pattern of simple ops that says what one op does, or nearly */
    const char *what;        /* that op: "Attention" */
    const char *node;        /* the last node of the pattern */
    const char *stop, *op;   /* the node that it was not raised for, its op, */
    const char *why;         /* and why; NULL: it was raised */
} gqac_raised;

/* What inspect tells. Owned by the info; unsupported things do not make gqac_info_open fail. */
typedef struct gqac_info {
    const char *format;   /* "onnx", "gqac" or "gq" */
    const char *producer; /* may be "" */
    int64_t ir_version, opset;
    int n_ops;
    const gqac_op_use *ops; /* as in the file, sorted by name */
    int n_unsupported;
    const gqac_unsupported *unsupported;
    int n_inputs, n_outputs;
    const gqac_io *inputs, *outputs; /* as the file declares them when something is unsupported */
    int n_kv_pairs;
    const gqac_kv_pair *kv_pairs;
    int n_mixing;
    const gqac_mixing *mixing; /* empty: the model is split-safe */
    int n_raised;
    const gqac_raised *raised;                           /* in the order of the nodes */
    int64_t parameters;                                  /* elements of all constants */
    const char *target, *math, *profile, *source_digest; /* of an artefact; else NULL */
} gqac_info;
GQAC_API gqac_status gqac_info_open(const char *model, const gqac_options *options,
                                    gqac_info **info, gqac_diag *diag);
GQAC_API void gqac_info_free(gqac_info *info);
/* Checks every byte of an artefact, weights included. INVALID_MODEL when one differs. */
GQAC_API gqac_status gqac_artefact_verify(const char *path, gqac_diag *diag);
/* SHA-256 as 64 hex digits and a NUL: of bytes, and of a model with its external data (of an
 * artefact: of the model that it was made from). IO, INVALID_MODEL, UNSUPPORTED as when it is
 * opened. */
GQAC_API void gqac_digest(const void *data, size_t bytes, char hex[65]);
GQAC_API gqac_status gqac_model_digest(const char *model, const gqac_options *options, char hex[65],
                                       gqac_diag *diag);
/* The files attached to an artefact, checked against their digests: an array of *n in one piece of
 * memory, freed with gqac_release. The data are followed by a NUL byte. USAGE when the file is not
 * an artefact. */
GQAC_API gqac_status gqac_artefact_attachments(const char *path, gqac_attachment **files, int *n,
                                               gqac_diag *diag);

/* ---- running ------------------------------------------------------------- */

/* Scratch memory and threads. threads >= 1. */
typedef struct gqac_context gqac_context;
GQAC_API gqac_status gqac_context_create(const gqac_program *program, int threads,
                                         gqac_context **context, gqac_diag *diag);
GQAC_API void gqac_context_free(gqac_context *context);
/* Which logits the steps of a context compute: those behind every new token (as a context starts),
 * or behind the last new token of each sequence. The last rows have the same bits either way. Gives
 * what held before. */
typedef enum gqac_logits { GQAC_LOGITS_ALL, GQAC_LOGITS_LAST } gqac_logits;
GQAC_API gqac_logits gqac_context_set_logits(gqac_context *context, gqac_logits logits);

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

/* Past tensors of a program, one for each past/present pair; of a stateless one too. A past that
 * holds keys and values in one tensor X is two pairs, X.key and X.value. */
GQAC_API int gqac_program_kv_pairs(const gqac_program *program, const gqac_kv_pair **pairs);
/* Rows a head of the past tensor of a sequence of `length` tokens: those of a state, or `length`.
 */
GQAC_API int64_t gqac_kv_pair_rows(const gqac_kv_pair *pair, int64_t length);
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

/* Appends tokens to n different sequences in one call: counts[i] >= 1 ids of sequence i, all rows
 * of `tokens` one after another. Any mixture of lengths and pasts is allowed (one sequence a step
 * when the model gives the last row of logits only). positions may be NULL; else positions[i] must
 * equal the length of sequence i. New lengths become visible only when the whole step succeeded: a
 * failed step leaves every sequence as it was. OUT_OF_RANGE (ids, positions, rope table), CAPACITY,
 * RECOMPUTE (LongRoPE threshold). */
GQAC_API gqac_status gqac_step(gqac_context *context, int n, gqac_sequence *const *sequences,
                               const int64_t *tokens, const int64_t *counts,
                               const int64_t *positions, gqac_diag *diag);
/* Logits of row i of the last step: [*rows, *vocabulary] fp32, row j is what follows its token j.
 * With GQAC_LOGITS_LAST, and for models that give only the last row, *rows is 1. Owned by the
 * context, valid until its next call; NULL before the first step. */
GQAC_API const float *gqac_context_logits(const gqac_context *context, int i, int64_t *rows,
                                          int64_t *vocabulary);

/* Runs a stateless program once: the graph as exported. Inputs by name, all of them; outputs are
 * views, valid until the context's next call and as long as the inputs (an output may be an input);
 * names NULL: all outputs in graph order. Inputs that are parameters of the context may be left
 * out.
 * USAGE (unknown or missing name), INVALID_INPUT (dtype or shape), OUT_OF_RANGE (values). */
GQAC_API gqac_status gqac_run(gqac_context *context, int n_inputs, const char *const *input_names,
                              const gqac_tensor *inputs, int n_outputs,
                              const char *const *output_names, gqac_tensor *outputs,
                              gqac_diag *diag);
/* From now on the output `name` of gqac_run is written to `data`, which holds `bytes` bytes; data
 * NULL: to memory of the context again. The memory must outlive the binding. It may be that of an
 * input: a present_key in the memory of its past_key, with room for all tokens, gets new rows only,
 * and nothing is copied. (Where the graph does not allow that, the output is made elsewhere and
 * copied at the end of the run.) gqac_run is INVALID_INPUT when an output has more than `bytes`, or
 * when a present lies on a past that has too few rows; USAGE when bound outputs overlap. What a run
 * that failed left in bound memory is unspecified. USAGE: unknown name, or a program for sequences.
 */
GQAC_API gqac_status gqac_context_bind_output(gqac_context *context, const char *name, void *data,
                                              size_t bytes, gqac_diag *diag);
/* Output `index` of the last gqac_run, in the order of the graph: a view, as gqac_run gives them.
 * USAGE: no such output, or no run that succeeded. */
GQAC_API gqac_status gqac_context_read_output(const gqac_context *context, int index,
                                              gqac_tensor *view, gqac_diag *diag);
/* Parameters: inputs of gqac_run that the context keeps, and that need not be given any more (one
 * that is given is used for that run alone). `reserve` makes one of zeros, or sets it to zeros
 * again. `upload` copies a tensor to its front: row r of each axis to row r (to the whole, when it
 * was not reserved before); what lies behind is left alone. `parameter` gives a view of its memory,
 * which runs read, and which stays where it is until it is reserved with another number of bytes:
 * gqac_context_bind_output may name it, so that a run writes what the next one reads. Reserving it
 * with another number of bytes frees the old memory: views of it end, bindings that lie in it are
 * taken back (those outputs go to memory of the context again), and gqac_context_read_output has
 * nothing until the next run. What is uploaded may lie in the memory of the parameter only when it
 * has its whole shape.
 * USAGE: unknown name, nothing uploaded; INVALID_INPUT: type or shape. */
GQAC_API gqac_status gqac_context_reserve(gqac_context *context, const char *name, int rank,
                                          const int64_t *dims, gqac_diag *diag);
GQAC_API gqac_status gqac_context_upload(gqac_context *context, const char *name,
                                         const gqac_tensor *tensor, gqac_diag *diag);
GQAC_API gqac_status gqac_context_parameter(gqac_context *context, const char *name,
                                            gqac_tensor *view, gqac_diag *diag);
/* Graph inputs and outputs of a stateless program, or of a sequence program as the run time sees
 * them. */
GQAC_API int gqac_program_inputs(const gqac_program *program, const gqac_io **inputs);
GQAC_API int gqac_program_outputs(const gqac_program *program, const gqac_io **outputs);
/* Was it opened with gqac_options.stateless: for gqac_run, not for sequences? */
GQAC_API bool gqac_program_is_stateless(const gqac_program *program);
/* Size of the vocabulary (last dimension of the logits), 0 when it is not constant. */
GQAC_API int64_t gqac_program_vocabulary(const gqac_program *program);
/* Bytes of all constants: what a call that uses every weight reads of them. */
GQAC_API int64_t gqac_program_weight_bytes(const gqac_program *program);
/* Memory of one sequence of `tokens` tokens, the last of them decoded one by one behind a prompt
 * fed in pieces of at most `chunk` tokens. Activations are the buffers of the plan, without what
 * kernels take for themselves. Lengths that only a run knows are taken to be `tokens`. */
typedef struct gqac_memory {
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
/* OUT_OF_RANGE unless 1 <= chunk <= tokens, when the model has fewer positions, or when a size
 * overflows; USAGE when the program was opened for stateless runs. */
GQAC_API gqac_status gqac_program_memory(const gqac_program *program, int64_t tokens, int64_t chunk,
                                         gqac_memory *memory, gqac_diag *diag);
/* Nodes that mix rows; 0: split-safe. */
GQAC_API int gqac_program_mixing(const gqac_program *program, const gqac_mixing **mixing);
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

/* One output of a node that has just run. Everything is valid during the call only. */
typedef struct gqac_observed {
    const char *value; /* the value of the model's own graph that it is; NULL: it is none of them */
    const char *node, *op, *kernel; /* name in the file, "MatMul", "ref.generic" */
    const gqac_tensor *tensor;
} gqac_observed;
typedef void gqac_observer(void *arg, const gqac_observed *seen);
/* Calls `observer` after each node of every later step or run of the context, for each of its
 * outputs, in the order of the nodes; NULL ends that. Nodes that another node's kernel computes,
 * and those that write the KV cache, are passed over. */
GQAC_API void gqac_context_observe(gqac_context *context, gqac_observer *observer, void *arg);

/* ---- what a token costs -------------------------------------------------- */

/* One kernel of a decode call: one sequence, one token behind `past` cached ones. Bytes are what it
 * has to read and write at least, each operand once: of embeddings and rotary tables the rows that
 * the token names, of the KV cache the rows that it sees and writes. */
typedef struct gqac_plan_step {
    const char *node, *op, *kernel; /* name in the file, "MatMul", "cpu.linear" */
    int n_fused;                    /* further nodes that the kernel computes: names of their ops */
    const char *const *fused;
    gqac_dtype dtype; /* of the first output */
    const char *shape;
    int64_t weight_bytes, cache_bytes, input_bytes, output_bytes;
    int barriers; /* regions that two threads share, at the end of which they wait for each other */
} gqac_plan_step;
typedef struct gqac_plan {
    int64_t past;
    int n_steps;
    const gqac_plan_step *steps; /* in order; texts belong to the program and the plan */
    gqac_plan_step total;        /* sums; texts are NULL */
} gqac_plan;
/* Runs one token behind `past` rows of zeros and tells what ran. The program must have been opened
 * for sequences and outlive the plan. OUT_OF_RANGE (the model has no room for so many tokens). */
GQAC_API gqac_status gqac_plan_open(const gqac_program *program, int64_t past, gqac_plan **plan,
                                    gqac_diag *diag);
GQAC_API void gqac_plan_free(gqac_plan *plan);

/* ---- tensor files -------------------------------------------------------- */

/* Reads or writes a .npy file. Reading allocates data, to be freed with gqac_tensor_free. `as` is
 * the element type wanted: it turns |V2 and uint16 into bf16 and int8/uint8 into i4/u4; GQAC_NONE
 * takes the file's own. IO; INVALID_INPUT for content. */
GQAC_API gqac_status gqac_npy_read(const char *path, gqac_dtype as, gqac_tensor *tensor,
                                   gqac_diag *diag);
GQAC_API gqac_status gqac_npy_write(const char *path, const gqac_tensor *tensor, gqac_diag *diag);
/* Reads a serialized ONNX TensorProto (.pb); the name goes to `name` (size bytes), which may be
 * NULL. */
GQAC_API gqac_status gqac_pb_read(const char *path, gqac_tensor *tensor, char *name, size_t size,
                                  gqac_diag *diag);
/* Memory for the elements that dtype, rank and dims of a tensor say, with no content: aligned to 64
 * bytes, on huge pages where there are many, for inputs and caches that runs read. data is to be
 * freed with gqac_tensor_free; after an error it is NULL. NO_MEMORY; LIMIT when the dimensions are
 * none or their product overflows. */
GQAC_API gqac_status gqac_tensor_alloc(gqac_tensor *tensor, gqac_diag *diag);
GQAC_API void gqac_tensor_free(gqac_tensor *tensor);
/* Element i as double (every numeric type). */
GQAC_API double gqac_tensor_get(const gqac_tensor *tensor, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
