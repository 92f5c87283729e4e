/* Compiling a model into a file: an artefact, ONNX again, or the text of its graph. */
#ifndef GQAC_COMPILE_H
#define GQAC_COMPILE_H

#include <gqac/options.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gqac_emit {
    GQAC_EMIT_NONE, /* nothing is written, `path` is ignored; passes run as for TEXT */
    GQAC_EMIT_GQAC, /* an artefact: the graph after pass `pack`, its weights, target, math, numerics
                       profile, and the SHA-256 of the model with its external data. The later
                       passes run too, to check that they succeed. With options->bake also the rows
                       of a prefix */
    GQAC_EMIT_ONNX, /* the graph after options->stop_after (by default `tidy`), in ONNX ops */
    GQAC_EMIT_TEXT  /* text IR of the graph after options->stop_after (by default the last pass) */
} gqac_emit;
/* Compiles a model and writes `path` in the form that `emit` names, whole or not at all. Errors are
 * those of gqac_program_open; also IO: the file cannot be written; USAGE: `path` is a file of the
 * model (gqac_check_output), or stop_after is set for an artefact. With options->bake also the
 * errors of gqac_sequence_create and gqac_step; USAGE: the output is not an artefact, the options
 * are for stateless runs, or there are no ids; UNSUPPORTED: the model takes embeddings. */
GQAC_API gqac_status gqac_compile(const char *model, const gqac_options *options, gqac_emit emit,
                                  const char *path, gqac_diag *diag);

/* Sets *name and *summary (one line) to constant texts of rewrite `index`, from 0. Returns false if
 * there is no such rewrite. */
GQAC_API bool gqac_rewrite_at(int index, const char **name, const char **summary);
typedef struct gqac_rewritten { /* the result of a rewrite */
    size_t size;
    int64_t changes;     /* 0: the graph is unchanged */
    const char *counted; /* follows the number in a report: "attention nodes now have a cache" */
    int n_files;         /* number of files that were written */
    const char *const *files; /* their paths */
} gqac_rewritten;
/* Applies rewrite `name` to an ONNX model (or .gq text) and writes ONNX to `path`, or, if the
 * rewrite has several results, to "<path without .onnx>.<part>.onnx". `path` may be `model` itself
 * if the model has no external data; the file is then left untouched if nothing changes. The caller
 * frees *result with gqac_release. USAGE: there is no such rewrite, `model` is an artefact, or
 * writing `path` would destroy weights of the model; UNSUPPORTED: the model lacks what the rewrite
 * needs (an input of tokens, attention), or has a part that cannot be rewritten; the other errors
 * are those of gqac_compile. */
GQAC_API gqac_status gqac_rewrite(const char *model, const char *name, const gqac_options *options,
                                  const char *path, gqac_rewritten **result, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
