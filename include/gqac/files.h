/* Files other than graphs: digests, attachments of artefacts, tensors. */
#ifndef GQAC_FILES_H
#define GQAC_FILES_H

#include <gqac/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Checks every byte of an artefact, weights included. IO; INVALID_MODEL: a byte has changed. */
GQAC_API gqac_status gqac_artefact_verify(const char *path, gqac_diag *diag);
/* SHA-256, as 64 hex digits and a NUL: of bytes; and of a model with its external data (for an
 * artefact: of the model from which it was made). IO, INVALID_MODEL, UNSUPPORTED as
 * gqac_program_open. */
GQAC_API void gqac_digest(const void *data, size_t bytes, char hex[65]);
GQAC_API gqac_status gqac_model_digest(const char *model, const gqac_options *options, char hex[65],
                                       gqac_diag *diag);
/* Reads the files attached to an artefact and checks their digests. *files is an array of *n in one
 * piece of memory, which the caller frees with gqac_release; a NUL byte follows the data of each.
 * IO; INVALID_MODEL; USAGE: the file is not an artefact. */
GQAC_API gqac_status gqac_artefact_attachments(const char *path, gqac_attachment **files, int *n,
                                               gqac_diag *diag);

/* Checks that writing to `path` destroys nothing that is read. USAGE: it would destroy a part of
 * the model: its file, its external data (when `program`, which may be NULL, was opened from it),
 * or a config, tokenizer, template or other graph in its folder; links and other spellings of a
 * path count as what they lead to. `model` is a file or a folder. gqac_compile and gqac_rewrite
 * check their paths themselves. */
GQAC_API gqac_status gqac_check_output(const char *model, const gqac_program *program,
                                       const char *path, gqac_diag *diag);

/* ---- tensor files -------------------------------------------------------- */

/* Reads or writes a .npy file. The caller frees the tensor that was read with gqac_tensor_free.
 * `as` is the element type of the result: |V2 and uint16 can be read as bf16, int8 and uint8 as i4
 * and u4; GQAC_NONE: the type in the file. IO; INVALID_INPUT: the content. */
GQAC_API gqac_status gqac_npy_read(const char *path, gqac_dtype as, gqac_tensor *tensor,
                                   gqac_diag *diag);
GQAC_API gqac_status gqac_npy_write(const char *path, const gqac_tensor *tensor, gqac_diag *diag);
/* Reads a serialized ONNX TensorProto (.pb); the caller frees the tensor with gqac_tensor_free. Its
 * name is stored in `name`, cut to `size` bytes including the NUL; NULL: not wanted. IO;
 * INVALID_INPUT. */
GQAC_API gqac_status gqac_pb_read(const char *path, gqac_tensor *tensor, char *name, size_t size,
                                  gqac_diag *diag);
/* Allocates tensor->data for the tensor's dtype, rank and dims, uninitialised: aligned to 64 bytes,
 * large data on huge pages, for inputs and caches of runs. The caller frees it with
 * gqac_tensor_free. On failure data is NULL. NO_MEMORY; LIMIT: as gqac_shape_bytes. */
GQAC_API gqac_status gqac_tensor_alloc(gqac_tensor *tensor, gqac_diag *diag);
GQAC_API void gqac_tensor_free(gqac_tensor *tensor);
/* Element i, in row-major order, as double; for every numeric type and bool. */
GQAC_API double gqac_tensor_get(const gqac_tensor *tensor, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
