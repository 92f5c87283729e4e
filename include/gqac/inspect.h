/* Inspection: what a model contains, what a token costs, and every value of a run. */
#ifndef GQAC_INSPECT_H
#define GQAC_INSPECT_H

#include <gqac/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_op_use {
    const char *op; /* "com.microsoft.GroupQueryAttention" */
    int count;
} gqac_op_use;
typedef struct gqac_unsupported {
    size_t size;
    const char *op, *reason;
    int count;         /* nodes */
    const char *first; /* name of the first node */
} gqac_unsupported;

typedef struct gqac_raised { /* a pattern of simple ops that means, or nearly means, what one op
                                does */
    size_t size;
    const char *what;      /* that op: "Attention" */
    const char *node;      /* the last node of the pattern */
    const char *stop, *op; /* the node that prevents raising, and its op; NULL: it was raised */
    const char *why;       /* the reason; NULL: it was raised */
} gqac_raised;

/* What a model contains. Lists and texts belong to the info. Unsupported parts of a model do not
 * make gqac_info_open fail; then pairs, mixing nodes, raised patterns and parameters are not known,
 * and their lists are empty. */
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
    const gqac_io *inputs, *outputs; /* as the file declares them if something is unsupported */
    int n_kv_pairs;
    const gqac_kv_pair *kv_pairs;
    int n_mixing;
    const gqac_mixing *mixing; /* n_mixing 0: the model is split-safe */
    int n_raised;
    const gqac_raised *raised; /* in the order of the nodes */
    int64_t parameters; /* number of elements in all constants; of an artefact, in those of the
                           model that it was made from; -1: not known */
    const char *target, *math, *profile, *source_digest; /* of an artefact; NULL for other files */
} gqac_info;
/* Reads a model, a folder or an artefact; the caller frees *info with gqac_info_free. Errors as
 * gqac_program_open, except for unsupported parts, which *info lists. */
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
/* Calls `observer` after each node of every later step or run of the context, for each of its
 * outputs, in the order of the nodes; NULL ends that. Nodes that another node's kernel computes,
 * and nodes that write the KV cache, are left out. */
GQAC_API void gqac_context_observe(gqac_context *context, gqac_observer *observer, void *arg);

/* ---- what a token costs -------------------------------------------------- */

/* One kernel of a decode call: one sequence, one new token after `past` cached ones. Bytes are the
 * minimum that the kernel must read and write, each operand once: of embeddings and rotary tables
 * the rows for the token, of the KV cache the rows that are visible or written, and
 * of recurrent states all. */
typedef struct gqac_plan_step {
    size_t size;
    const char *node, *op, *kernel; /* name in the file; "MatMul"; "cpu.linear" */
    int n_fused; /* further nodes that the kernel computes: the names of their ops */
    const char *const *fused;
    gqac_dtype dtype; /* of the first output */
    const char *shape;
    int64_t weight_bytes, cache_bytes, input_bytes, output_bytes;
    int barriers; /* regions in which two threads would share the work, and wait at the end */
} gqac_plan_step;
typedef struct gqac_plan {
    size_t size;
    int64_t past;
    int n_steps;
    /* In the order of execution; texts belong to the program and the plan. */
    const gqac_plan_step *steps;
    gqac_plan_step total; /* sums; texts are NULL */
} gqac_plan;
/* Runs one token after `past` rows of zeros and reports what ran; the caller frees *plan. The
 * program must have been opened for sequences and must outlive the plan. OUT_OF_RANGE: the model
 * has too few positions. */
GQAC_API gqac_status gqac_plan_open(const gqac_program *program, int64_t past, gqac_plan **plan,
                                    gqac_diag *diag);
GQAC_API void gqac_plan_free(gqac_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
