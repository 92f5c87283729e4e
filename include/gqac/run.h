/* Stateless runs: the graph as exported, all inputs and outputs explicit. */
#ifndef GQAC_RUN_H
#define GQAC_RUN_H

#include <gqac/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a stateless program once: the graph as exported. Inputs by name, all of them; outputs are
 * views, valid until the context's next call and as long as the inputs (an output may be an input);
 * names NULL: all outputs in graph order. Inputs that are parameters of the context may be left
 * out.
 * USAGE (unknown or missing name), INVALID_INPUT (dtype or shape), OUT_OF_RANGE (values). */
GQAC_API gqac_status gqac_run(gqac_context *context, int n_inputs, const char *const *input_names,
                              const gqac_tensor *inputs, int n_outputs,
                              const char *const *output_names, gqac_tensor *outputs,
                              gqac_diag *diag);
/* From now on the output `name` of gqac_run is written to `data`, which holds `bytes` bytes; data
 * NULL: to memory of the context again. The memory must outlive the binding. It may be that of an
 * input: a present_key in the memory of its past_key, with room for all tokens, gets new rows only,
 * and nothing is copied. (Where the graph does not allow that, the output is made elsewhere and
 * copied at the end of the run.) gqac_run is INVALID_INPUT when an output has more than `bytes`, or
 * when a present lies on a past that has too few rows; USAGE when bound outputs overlap. What a run
 * that failed left in bound memory is unspecified. USAGE: unknown name, or a program for sequences.
 */
GQAC_API gqac_status gqac_context_bind_output(gqac_context *context, const char *name, void *data,
                                              size_t bytes, gqac_diag *diag);
/* Output `index` of the last gqac_run, in the order of the graph: a view, as gqac_run gives them.
 * USAGE: no such output, or no run that succeeded. */
GQAC_API gqac_status gqac_context_read_output(const gqac_context *context, int index,
                                              gqac_tensor *view, gqac_diag *diag);

/* Parameters: inputs of gqac_run that the context keeps, and that need not be given any more (one
 * that is given is used for that run alone). `reserve` makes one of zeros, or sets it to zeros
 * again. `upload` copies a tensor to its front: row r of each axis to row r (to the whole, when it
 * was not reserved before); what lies behind is left alone. `parameter` gives a view of its memory,
 * which runs read, and which stays where it is until it is reserved with another number of bytes:
 * gqac_context_bind_output may name it, so that a run writes what the next one reads. Reserving it
 * with another number of bytes frees the old memory: views of it end, bindings that lie in it are
 * taken back (those outputs go to memory of the context again), and gqac_context_read_output has
 * nothing until the next run. What is uploaded may lie in the memory of the parameter only when it
 * has its whole shape.
 * USAGE: unknown name, nothing uploaded; INVALID_INPUT: type or shape. */
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
