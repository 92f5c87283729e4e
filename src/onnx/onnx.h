/* ONNX files to and from the IR. */
#ifndef GQAC_ONNX_ONNX_H
#define GQAC_ONNX_ONNX_H

#include "base/limits.h"
#include "ir/ir.h"
#include "ops/op.h"

/* A model in memory: see gqac_model_bytes. */
typedef struct onnx_memory {
    const void *data;
    size_t bytes;
    gqac_status (*external)(void *arg, const char *name, const void **data, size_t *bytes,
                            gqac_diag *diag);
    void *arg;
} onnx_memory;

typedef struct onnx_options {
    const char *model_root;    /* folder in which external data must lie; NULL: the model's own */
    const onnx_memory *memory; /* NULL: the model is a file */
    const gqac_limits *limits; /* without 0; NULL: all defaults */
} onnx_options;

/* Something that the model uses and gqac does not support. */
typedef struct onnx_unsupported {
    const char *op;     /* "com.microsoft.MoE" */
    const char *reason; /* "unknown op", "attribute smooth_softmax = 1 is not supported" */
    int count;
    const char *first; /* name of the first such node */
} onnx_unsupported;

/* A graph input or output as the file declares it. */
typedef struct onnx_io {
    const char *name;
    gqac_dtype dtype;  /* GQAC_NONE: not declared, or not a type of gqac */
    int rank;          /* -1: not declared */
    const char *shape; /* "[batch,8,?]" */
} onnx_io;

/* Filled by onnx_import, even if it fails, as far as it got; lives in the module's arena. */
typedef struct onnx_report {
    int64_t ir_version;
    int64_t opset; /* of the default domain */
    const char *producer;
    int n_ops;
    const char **ops; /* distinct op names ("com.microsoft.X"), sorted; known or not */
    int *op_counts;   /* number of nodes of each, in nested graphs too */
    int n_unsupported;
    onnx_unsupported *unsupported; /* sorted by op, then reason */
    int n_inputs, n_outputs;       /* of the main graph, without those that are constants */
    onnx_io *inputs, *outputs;
} onnx_report;

/* The mapped files in which the module's constants lie. */
typedef struct onnx_files onnx_files;
void onnx_files_close(onnx_files *files);
bool onnx_files_whole(const onnx_files *files); /* gqac_map_whole, of all of them */
/* True if the model has external data. */
bool onnx_files_external(const onnx_files *files);
/* True if `path` is one of the files of the model's external data. */
bool onnx_files_hold(const onnx_files *files, const char *path);
/* True if `data` lies in memory of the caller: in a model in memory, or in its external data. */
bool onnx_files_borrow(const onnx_files *files, const void *data);
/* Forgets that memory, to which nothing refers any more. */
void onnx_files_forget(onnx_files *files);

/* Imports a model: one ONNX node becomes one IR node in its newest form; functions are inlined
 * unless their op is native; unknown ops, attribute values and inputs are all collected into report
 * and named together in one UNSUPPORTED error. The module, in `arena`, refers to *files, which the
 * caller closes when the module is no longer used. INVALID_MODEL, UNSUPPORTED, LIMIT: content of
 * the model or its external data; IO: the model itself cannot be read. */
gqac_status onnx_import(const char *path, const onnx_options *options, gqac_arena *arena,
                        ir_module **module, onnx_files **files, onnx_report *report,
                        gqac_diag *diag);
/* SHA-256 of the model file and the external data that it uses, in order of first use. */
gqac_status onnx_digest(const onnx_files *files, gqac_poll *poll, unsigned char digest[32],
                        gqac_diag *diag);
/* Bytes of those files. */
int64_t onnx_files_bytes(const onnx_files *files);

/* Reads a serialized TensorProto (the .pb files of ONNX node tests). Data and name are copied to
 * the arena; *name may be "". IO: the file cannot be read; INVALID_INPUT: its content is wrong. */
gqac_status onnx_read_tensor(const char *path, gqac_arena *arena, gqac_tensor *tensor,
                             const char **name, gqac_diag *diag);

/* Writes a module of ONNX ops as an ONNX file, whole or not at all. If its data are more than 1 GiB
 * in total, they are written to `<path>.data`. UNSUPPORTED: an op is not ONNX; *diag names the
 * first. */
gqac_status onnx_export(const ir_module *module, const char *path, gqac_poll *poll,
                        gqac_diag *diag);

#endif
