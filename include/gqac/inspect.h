/* Inspection: what a model contains, what a decode step costs, and the values of a run. */
#ifndef GQAC_INSPECT_H
#define GQAC_INSPECT_H

#include <gqac/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Like every struct without `size`, this one never grows. */
typedef struct gqac_op_use {
    const char *op; /* "com.microsoft.GroupQueryAttention" */
    int count;
} gqac_op_use;
typedef struct gqac_unsupported { /* an op, or a use of one, that gqac does not support */
    size_t size;
    const char *op, *reason;
    int count;         /* nodes */
    const char *first; /* name of the first node */
} gqac_unsupported;

typedef struct gqac_raised { /* a pattern of simple ops that was raised to one op, or nearly was */
    size_t size;
    const char *what;      /* the one op: "Attention" */
    const char *node;      /* the last node of the pattern */
    const char *stop, *op; /* the node that prevented raising, and its op; NULL: it was raised */
    const char *why;       /* the reason; NULL: it was raised */
} gqac_raised;

/* What a model contains. Lists and texts belong to the info. A model with unsupported parts can be
 * inspected too; then past/present pairs, mixing nodes, raised patterns and the number of
 * parameters are not known: the lists are empty, and parameters is -1. */
typedef struct gqac_info {
    size_t size;
    const char *format;   /* "onnx", "gqac" or "gq" */
    const char *producer; /* may be "" */
    int64_t ir_version, opset;
    int n_ops;
    const gqac_op_use *ops; /* ops of the file, sorted by name */
    int n_unsupported;
    const gqac_unsupported *unsupported;
    int n_inputs, n_outputs;
    const gqac_io *inputs, *outputs; /* if something is unsupported, as the file declares them */
    int n_kv_pairs;
    const gqac_kv_pair *kv_pairs;
    int n_mixing;
    const gqac_mixing *mixing; /* n_mixing 0: the model is split-safe */
    int n_raised;
    const gqac_raised *raised; /* in the order of the nodes */
    int64_t parameters; /* number of elements of all constants; for an artefact, of the model that
                           it was made from; -1: not known */
    const char *target, *math, *profile, *source_digest; /* of an artefact; NULL for other files */
    /* Of an artefact with a baked prefix (gqac_program_baked): its tokens, the bytes of its
     * section, and its kind of cache; else 0 and NULL. */
    int64_t baked_tokens, baked_bytes;
    const char *baked_kind;
} gqac_info;
/* Inspects a file (.onnx, .gqac or .gq); gqac_text_model_path finds that of a folder. The caller
 * frees *info with gqac_info_free. Errors are those of gqac_program_open, but unsupported parts are
 * listed in *info and are no error. */
GQAC_API gqac_status gqac_info_open(const char *model, const gqac_options *options,
                                    gqac_info **info, gqac_diag *diag);
GQAC_API void gqac_info_free(gqac_info *info);

/* One output of a node that has just run. All pointers are valid during the callback only. */
typedef struct gqac_observed {
    size_t size;
    const char *value; /* its name in the model's own graph; NULL: the compiler made it */
    const char *node, *op, *kernel; /* name in the file; "MatMul"; "ref.generic" */
    const gqac_tensor *tensor;
} gqac_observed;
typedef void gqac_observer(void *arg, const gqac_observed *seen);
/* Calls `observer` in every later step or run of the context: after each node, once for each of its
 * outputs, in the order of the nodes. Nodes that another node's kernel computes, and nodes that
 * write the KV cache, are left out. `observer` NULL: observation ends. */
GQAC_API void gqac_context_observe(gqac_context *context, gqac_observer *observer, void *arg);

/* ---- what a token costs -------------------------------------------------- */

/* One kernel of a decode step: one sequence, one new token after `past` cached tokens. Bytes are
 * the minimum that the kernel must read and write when each operand is read once. Only the token's
 * rows of embeddings and rotary tables count, and only those rows of the KV cache that are visible
 * or written; recurrent states count in full. */
typedef struct gqac_plan_step {
    size_t size;
    const char *node, *op, *kernel; /* name in the file; "MatMul"; "cpu.linear" */
    int n_fused; /* number of further nodes that the kernel computes; `fused` has their ops */
    const char *const *fused;
    gqac_dtype dtype; /* this and `shape`: of the first output */
    const char *shape;
    int64_t weight_bytes, cache_bytes, input_bytes, output_bytes;
    int barriers; /* regions that two threads would split; each ends with a barrier */
} gqac_plan_step;
typedef struct gqac_plan { /* all kernels of a decode step */
    size_t size;
    int64_t past;
    int n_steps;
    /* In the order of execution; texts belong to the program and the plan. */
    const gqac_plan_step *steps;
    gqac_plan_step total; /* sums; texts are NULL */
} gqac_plan;
/* Runs a decode step after `past` cached rows of zeros and reports the kernels that ran. The caller
 * frees *plan. The program must have been opened for sequences and must outlive the plan.
 * OUT_OF_RANGE: the model has too few positions; USAGE: the program is for stateless runs. */
GQAC_API gqac_status gqac_plan_open(const gqac_program *program, int64_t past, gqac_plan **plan,
                                    gqac_diag *diag);
GQAC_API void gqac_plan_free(gqac_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
