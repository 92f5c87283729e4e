/* Looking at a model without running it, at what a token costs, and at every value of a run. */
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
    const char *first; /* name of the first one */
} gqac_unsupported;

typedef struct gqac_raised { /* a pattern of simple ops that says what one op does, or nearly */
    size_t size;
    const char *what;      /* that op: "Attention" */
    const char *node;      /* the last node of the pattern */
    const char *stop, *op; /* the node that it was not raised for, its op, */
    const char *why;       /* and why; NULL: it was raised */
} gqac_raised;

/* What inspect tells. Owned by the info; unsupported things do not make gqac_info_open fail, but
 * then pairs, mixing nodes, raised patterns and parameters are not known: there are none here. */
typedef struct gqac_info {
    size_t size;
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
    const gqac_raised *raised; /* in the order of the nodes */
    int64_t parameters;        /* elements of all constants; -1: not known */
    const char *target, *math, *profile, *source_digest; /* of an artefact; else NULL */
} gqac_info;
GQAC_API gqac_status gqac_info_open(const char *model, const gqac_options *options,
                                    gqac_info **info, gqac_diag *diag);
GQAC_API void gqac_info_free(gqac_info *info);

/* One output of a node that has just run. Everything is valid during the call only. */
typedef struct gqac_observed {
    size_t size;
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
    size_t size;
    const char *node, *op, *kernel; /* name in the file, "MatMul", "cpu.linear" */
    int n_fused;                    /* further nodes that the kernel computes: names of their ops */
    const char *const *fused;
    gqac_dtype dtype; /* of the first output */
    const char *shape;
    int64_t weight_bytes, cache_bytes, input_bytes, output_bytes;
    int barriers; /* regions that two threads share, at the end of which they wait for each other */
} gqac_plan_step;
typedef struct gqac_plan {
    size_t size;
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

#ifdef __cplusplus
}
#endif
#endif
