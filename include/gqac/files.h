/* Files other than graphs: digests, attachments of artefacts, tensors in files and the memory of a
 * tensor that was read. */
#ifndef GQAC_FILES_H
#define GQAC_FILES_H

#include <gqac/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Checks every byte of an artefact, weights included. IO: it cannot be read; INVALID_MODEL: a byte
 * has changed; USAGE: the file is not an artefact. */
GQAC_API gqac_status gqac_artefact_verify(const char *path, gqac_diag *diag);
/* A SHA-256, as 64 hex digits and a NUL: gqac_digest that of `bytes` bytes, gqac_model_digest that
 * of a model with its external data. For an artefact it is the stored digest of the model from
 * which it was made, and only that is read and checked (gqac_artefact_verify reads all). IO,
 * INVALID_MODEL, UNSUPPORTED: as for gqac_program_open. */
GQAC_API void gqac_digest(const void *data, size_t bytes, char hex[65]);
GQAC_API gqac_status gqac_model_digest(const char *model, const gqac_options *options, char hex[65],
                                       gqac_diag *diag);
/* Reads the files attached to an artefact and checks their digests. *files is an array of *n
 * elements; a NUL byte follows the data of each. The caller frees *files with gqac_release, which
 * frees names and data too. IO: the artefact cannot be read; INVALID_MODEL: its content is wrong;
 * USAGE: `path` is not an artefact. */
GQAC_API gqac_status gqac_artefact_attachments(const char *path, gqac_attachment **files, int *n,
                                               gqac_diag *diag);

/* Checks that writing to `path` destroys no part of the model: its file, a config, tokenizer,
 * template or other graph in its folder, or, if `program` is not NULL, the external data of the
 * program, which was opened from the model. `model` is a file or a folder. Paths are compared by
 * the files that they lead to, so a link or another spelling makes no difference. gqac_compile and
 * gqac_rewrite check their paths themselves. USAGE: a part of the model would be destroyed. */
GQAC_API gqac_status gqac_check_output(const char *model, const gqac_program *program,
                                       const char *path, gqac_diag *diag);

/* ---- tensor files -------------------------------------------------------- */

/* Reads or writes a .npy file. The caller frees the tensor that was read with gqac_tensor_free.
 * `as` is the element type of the result; GQAC_NONE: the type that the file has. |V2 and uint16 can
 * be read as bf16, int8 and uint8 as i4 and u4, with one element in each byte of the file. IO: the
 * file cannot be read or written; INVALID_INPUT: its content is wrong, or a value does not fit. */
GQAC_API gqac_status gqac_npy_read(const char *path, gqac_dtype as, gqac_tensor *tensor,
                                   gqac_diag *diag);
GQAC_API gqac_status gqac_npy_write(const char *path, const gqac_tensor *tensor, gqac_diag *diag);
/* Reads a serialized ONNX TensorProto (.pb); the caller frees the tensor with gqac_tensor_free. The
 * tensor's name is stored in `name`, cut to `size` bytes including the NUL; `name` may be NULL. IO:
 * the file cannot be read; INVALID_INPUT: its content is wrong. */
GQAC_API gqac_status gqac_pb_read(const char *path, gqac_tensor *tensor, char *name, size_t size,
                                  gqac_diag *diag);
/* Allocates tensor->data for the tensor's dtype, rank and dims: uninitialised, aligned to 64 bytes,
 * and on huge pages if large. The caller frees it with gqac_tensor_free. On failure data is NULL.
 * LIMIT: as for gqac_shape_bytes; NO_MEMORY. */
GQAC_API gqac_status gqac_tensor_alloc(gqac_tensor *tensor, gqac_diag *diag);
GQAC_API void gqac_tensor_free(gqac_tensor *tensor);
/* Returns element i, 0 <= i < gqac_tensor_count in row-major order, of a tensor of any numeric type
 * or bool, as a double. */
GQAC_API double gqac_tensor_get(const gqac_tensor *tensor, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
