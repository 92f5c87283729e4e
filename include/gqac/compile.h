/* Compiling a model into a file: an artefact, ONNX again, or the text of its graph. */
#ifndef GQAC_COMPILE_H
#define GQAC_COMPILE_H

#include <gqac/options.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gqac_emit { GQAC_EMIT_NONE, GQAC_EMIT_GQAC, GQAC_EMIT_ONNX, GQAC_EMIT_TEXT } gqac_emit;
/* Runs the passes up to options->stop_after (for an artefact: up to pack, and then checks that the
 * rest succeeds) and writes the graph to `path`, whole or not at all. NONE runs and writes nothing.
 * The artefact keeps the packed graph and weights, target, math, numerics profile and the SHA-256
 * of the model and its external data. USAGE when `path` is a file of the model: gqac_check_output.
 */
GQAC_API gqac_status gqac_compile(const char *model, const gqac_options *options, gqac_emit emit,
                                  const char *path, gqac_diag *diag);

/* Name and one-line summary of rewrite `index` (from 0); false when there are no more. */
GQAC_API bool gqac_rewrite_at(int index, const char **name, const char **summary);
typedef struct gqac_rewritten {
    size_t size;
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

#ifdef __cplusplus
}
#endif
#endif
