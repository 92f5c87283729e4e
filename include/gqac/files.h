/* Files beside the graph: digests, what an artefact carries, tensors. */
#ifndef GQAC_FILES_H
#define GQAC_FILES_H

#include <gqac/program.h>

#ifdef __cplusplus
extern "C" {
#endif

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

/* USAGE when writing to `path` would destroy a model that is read: its file, its external data
 * (when `program`, which may be NULL, was opened from it), or a config, tokenizer, template or
 * other graph in its folder; links and other spellings of a path count as what they lead to.
 * `model` is a file or a folder. gqac_compile and gqac_rewrite check their paths themselves. */
GQAC_API gqac_status gqac_check_output(const char *model, const gqac_program *program,
                                       const char *path, gqac_diag *diag);

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
