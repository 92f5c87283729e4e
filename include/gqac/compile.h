/* Compiling a model into a file: an artefact, ONNX again, or the text of its graph. */
#ifndef GQAC_COMPILE_H
#define GQAC_COMPILE_H

#include <gqac/options.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gqac_emit { GQAC_EMIT_NONE, GQAC_EMIT_GQAC, GQAC_EMIT_ONNX, GQAC_EMIT_TEXT } gqac_emit;
/* Runs the passes up to options->stop_after and writes the graph to `path`, whole or not at all. An
 * artefact (GQAC) holds the graph after `pack`; the remaining passes run too, to check that they
 * succeed. NONE writes nothing. The artefact keeps the packed graph and weights, target, math,
 * numerics profile and the SHA-256 of the model and its external data. Fails as gqac_program_open
 * does, with IO when the file cannot be written, and with USAGE when `path` is a file of the model
 * (gqac_check_output). */
GQAC_API gqac_status gqac_compile(const char *model, const gqac_options *options, gqac_emit emit,
                                  const char *path, gqac_diag *diag);

/* Sets *name and *summary (one line; both constant) of rewrite `index`, from 0. Returns false if
 * there is no such rewrite. */
GQAC_API bool gqac_rewrite_at(int index, const char **name, const char **summary);
typedef struct gqac_rewritten {
    size_t size;
    int64_t changes;     /* 0: the graph is unchanged */
    const char *counted; /* what was counted: "attention nodes have a cache now" */
    int n_files;         /* files that were written, and their paths */
    const char *const *files;
} gqac_rewritten;
/* Rewrites an ONNX model (or .gq text) and writes ONNX: applies rewrite `name` to the file `model`
 * and writes `path`, or, for a rewrite with several results, "<path without .onnx>.<part>.onnx".
 * `path` may be the model itself if the model has no external data; a rewrite that changes nothing
 * then leaves it untouched. The caller frees *done with gqac_release. USAGE: no such rewrite, an
 * artefact, or a path that would destroy weights of the model; UNSUPPORTED: there is nothing to
 * rewrite, or a part that cannot be rewritten; else as gqac_compile. */
GQAC_API gqac_status gqac_rewrite(const char *model, const char *name, const gqac_options *options,
                                  const char *path, gqac_rewritten **done, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
