/* Stateless runs: the graph as exported, all inputs and outputs explicit. */
#ifndef GQAC_RUN_H
#define GQAC_RUN_H

#include <gqac/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a stateless program once. Inputs are given by name, in any order; all are required but
 * parameters of the context. Outputs are listed by name; output_names NULL: all, in graph order.
 * Outputs are views, valid until the next call with the context and as long as the inputs (an
 * output may be an input). USAGE: an unknown or missing name; INVALID_INPUT: dtype or shape;
 * OUT_OF_RANGE: values; CAPACITY, NO_MEMORY; ABORTED: by the monitor of the context. */
GQAC_API gqac_status gqac_run(gqac_context *context, int n_inputs, const char *const *input_names,
                              const gqac_tensor *inputs, int n_outputs,
                              const char *const *output_names, gqac_tensor *outputs,
                              gqac_diag *diag);
/* The types and shapes that gqac_run would return for these inputs, without running it: sets dtype,
 * rank and dims of outputs[i], and data to NULL, so that the caller can allocate and bind it
 * (gqac_context_bind_output). Inputs as for gqac_run, but data may be NULL: then only type and
 * shape are used. Where shapes depend on values (total_sequence_length, seqlens_k, axes, ...), the
 * values are read from integer and bool tensors of at most 64 KiB, and from other tensors of at
 * most 512 bytes. A dimension is -1 if it depends on values that only a run computes (NonZero, the
 * trip count of a Loop) or on an input without data; rank is -1 and dtype GQAC_NONE if they are
 * unknown too. Results are what a run returns, whatever the file declares. Needs memory for a copy
 * of the graph, without weights, during the call. USAGE and INVALID_INPUT as gqac_run, also for
 * errors that a run would report later. */
GQAC_API gqac_status gqac_run_shapes(const gqac_context *context, int n_inputs,
                                     const char *const *input_names, const gqac_tensor *inputs,
                                     int n_outputs, const char *const *output_names,
                                     gqac_tensor *outputs, gqac_diag *diag);
/* Binds the output `name` of later calls of gqac_run to `data`, which has `bytes` bytes: results
 * are written there. data NULL: to memory of the context again. The memory must outlive the
 * binding. It may be the memory of an input: a present_key bound to the memory of its past_key,
 * with capacity for all tokens, is written in its new rows only, and nothing is copied. (Where the
 * graph does not allow that, the output is computed elsewhere and copied at the end of the run.)
 * gqac_run then fails with INVALID_INPUT when an output is larger than `bytes`, or when a present
 * is bound to a past with too few rows; with USAGE when bound outputs overlap. After a failed run
 * the contents of bound memory are unspecified. USAGE: an unknown name, or a program for
 * sequences. */
GQAC_API gqac_status gqac_context_bind_output(gqac_context *context, const char *name, void *data,
                                              size_t bytes, gqac_diag *diag);
/* Sets *view to output `index`, in graph order, of the last gqac_run: a view, valid as those of
 * gqac_run. USAGE: no such output, or no successful run. */
GQAC_API gqac_status gqac_context_read_output(const gqac_context *context, int index,
                                              gqac_tensor *view, gqac_diag *diag);

/* Parameters: inputs of gqac_run that the context keeps and that need not be given again (one that
 * is given is used for that run only).
 *
 * `reserve` creates a parameter of that shape, all zeros, or sets it to zeros again. `upload`
 * copies a tensor to the start of the parameter: along each axis, index i to index i; elements
 * outside the tensor's shape keep their values. A parameter that was not reserved gets the tensor's
 * shape. `parameter` sets *view to its memory, which runs read. The address stays the same until
 * the parameter is reserved with another number of bytes, so gqac_context_bind_output may name it:
 * a run then writes what the next run reads. Reserving with another number of bytes frees the old
 * memory: views of it become invalid, bindings inside it are removed (those outputs go to memory of
 * the context again), and gqac_context_read_output fails until the next run. An uploaded tensor may
 * be a view of the parameter itself only if it has the same shape.
 *
 * USAGE: an unknown name, or, for `parameter`, one that was neither reserved nor uploaded;
 * INVALID_INPUT: type or shape; CAPACITY, NO_MEMORY. */
GQAC_API gqac_status gqac_context_reserve(gqac_context *context, const char *name, int rank,
                                          const int64_t *dims, gqac_diag *diag);
GQAC_API gqac_status gqac_context_upload(gqac_context *context, const char *name,
                                         const gqac_tensor *tensor, gqac_diag *diag);
GQAC_API gqac_status gqac_context_parameter(gqac_context *context, const char *name,
                                            gqac_tensor *view, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
