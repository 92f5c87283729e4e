/* Stateless runs: the graph as exported, all inputs and outputs explicit. */
#ifndef GQAC_RUN_H
#define GQAC_RUN_H

#include <gqac/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a stateless program once. Inputs are given by name, in any order; all are required except
 * parameters of the context. outputs[i] receives the output output_names[i]; output_names NULL: the
 * first n_outputs outputs of the graph, in order. Outputs are views, valid until the next call with
 * the context. An output may be an input, so the memory of the inputs must stay valid as long as
 * the views are used. USAGE: a name is unknown or missing, or the program is for sequences;
 * INVALID_INPUT: wrong dtype or shape; OUT_OF_RANGE: wrong values; CAPACITY: the memory budget is
 * used up; NO_MEMORY; IO: a file of the model was truncated after it was opened; ABORTED: the
 * context's monitor ended the call. */
GQAC_API gqac_status gqac_run(gqac_context *context, int n_inputs, const char *const *input_names,
                              const gqac_tensor *inputs, int n_outputs,
                              const char *const *output_names, gqac_tensor *outputs,
                              gqac_diag *diag);
/* Computes the types and shapes of outputs without a run: sets dtype, rank and dims of outputs[i]
 * to those that gqac_run would return for these inputs, and data to NULL. The caller can then
 * allocate and bind memory for them (gqac_context_bind_output). Inputs are those of gqac_run, but
 * `data` may be NULL; then only type and shape are used. Where shapes depend on values
 * (total_sequence_length, seqlens_k, axes, ...), the values are read from integer and bool tensors
 * of at most 64 KiB, and from other tensors of at most 512 bytes. A dimension is -1 if it is
 * unknown: it depends on values that only a run computes (NonZero, the trip count of a Loop), or on
 * an input without data. An unknown rank is -1, an unknown dtype GQAC_NONE. The call needs memory
 * for a copy of the graph, without weights. USAGE and INVALID_INPUT: as for gqac_run, including
 * errors that a run would report later. */
GQAC_API gqac_status gqac_run_shapes(const gqac_context *context, int n_inputs,
                                     const char *const *input_names, const gqac_tensor *inputs,
                                     int n_outputs, const char *const *output_names,
                                     gqac_tensor *outputs, gqac_diag *diag);
/* Finds the valid rows of presents without a run: sets rows[i * batch + b], for output i and batch
 * row b < batch, to the number of rows, counted from the first, that the call defines in a present
 * of GroupQueryAttention [B,H,C,D], whose capacity C may be larger than the length. Rows after them
 * are unspecified. -1: all rows are valid, or nothing is known about the output. The other
 * arguments and errors are those of gqac_run_shapes. */
GQAC_API gqac_status gqac_run_valid_rows(const gqac_context *context, int n_inputs,
                                         const char *const *input_names, const gqac_tensor *inputs,
                                         int n_outputs, const char *const *output_names,
                                         int64_t batch, int64_t *rows, gqac_diag *diag);
/* Binds output `name` of later calls of gqac_run to `data`, which has `bytes` bytes: the output is
 * written there. data NULL: it is written to memory of the context again. The memory must outlive
 * the binding. It may be the memory of an input. If a present_key is bound to the memory of its
 * past_key, which has capacity for all tokens, only the new rows are written and nothing is copied.
 * (If the graph does not allow that, the output is computed elsewhere and copied at the end of the
 * run.) While outputs are bound, gqac_run also fails with INVALID_INPUT if an output is larger than
 * `bytes`, or a present is bound to a past with too few rows; and with USAGE if bound outputs
 * overlap. After a failed run the contents of bound memory are unspecified. USAGE: the name is
 * unknown, or the program is for sequences. */
GQAC_API gqac_status gqac_context_bind_output(gqac_context *context, const char *name, void *data,
                                              size_t bytes, gqac_diag *diag);
/* Sets *view to output `index`, in graph order, of the last gqac_run. The view is valid as long as
 * the outputs of that call. USAGE: there is no such output, or the last run did not succeed. */
GQAC_API gqac_status gqac_context_read_output(const gqac_context *context, int index,
                                              gqac_tensor *view, gqac_diag *diag);

/* Parameters: inputs of gqac_run that the context keeps, so that they need not be given in each
 * call. (If one is given nevertheless, that run uses the given tensor instead.)
 *
 * `reserve` creates a parameter of that shape, filled with zeros; an existing one is set to zeros.
 * `upload` copies a tensor to the start of the parameter: along each axis, index i to index i.
 * Elements outside the tensor's shape keep their values. A parameter that was not reserved gets the
 * tensor's shape. `parameter` sets *view to the memory of the parameter, from which runs read. Its
 * address stays the same until the parameter is reserved with another number of bytes, so an output
 * may be bound to it (gqac_context_bind_output): one run then writes what the next run reads.
 * Reserving with another number of bytes frees the old memory: views of it become invalid, bindings
 * inside it are removed (those outputs go to memory of the context again), and
 * gqac_context_read_output fails until the next run. An uploaded tensor may be a view of the
 * parameter itself only if it has the same shape.
 *
 * USAGE: the name is unknown, or, for `parameter`, was neither reserved nor uploaded;
 * INVALID_INPUT: wrong type or shape; CAPACITY: the memory budget is used up; NO_MEMORY. */
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
