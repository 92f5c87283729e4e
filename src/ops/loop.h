/* What Loop and Scan share: a body that is repeated on copies of its results, and results that are
 * stacked.
 *
 * A run has the arguments [lead_args (set by the op), states, slices] and the results
 * [lead_results, states, rows]. */
#ifndef GQAC_OPS_LOOP_H
#define GQAC_OPS_LOOP_H

#include "ops/shared.h"

typedef struct loop_value {
    gqac_tensor tensor; /* data: own memory of `capacity` bytes */
    size_t capacity;
} loop_value;

typedef struct loop_frame {
    const ir_graph *body;
    int lead_args, lead_results, n_states, n_rows;
    loop_value *now, *next; /* states before and after a run */
    loop_value *rows;       /* [count, ...], rank 0 before the first */
    int64_t count;          /* of runs */
    gqac_tensor *results;
    const gqac_tensor **args; /* the op sets lead_args and slices */
    void *memory;
} loop_frame;

/* The states start as the inputs from `first` on. Call loop_close whatever this returns. */
gqac_status loop_open(op_call *call, const ir_graph *body, int lead_args, int lead_results,
                      int n_states, int first, loop_frame *frame);
/* INVALID_INPUT where an argument is not as the body declares it, because its nodes were compiled
 * for that. The host of the call limits the number of runs (LIMIT). */
gqac_status loop_run_body(op_call *call, loop_frame *frame);
/* States become the outputs from 0 on. */
gqac_status loop_give_states(op_call *call, const loop_frame *frame);
/* Shape [count, ...] of the stacked results of row i; without a run it follows from the type. */
gqac_status loop_rows_shape(op_call *call, const loop_frame *frame, int i, gqac_tensor *shape);
void loop_close(loop_frame *frame);

/* Types of the outputs that are states: what the body leaves unchanged from run to run. */
gqac_status loop_infer_states(ir_node *node, const ir_graph *body, int lead_results, int n_states,
                              int first, gqac_diag *diag);
/* The type of an output that has the results of all runs along `axis`, of length `count`. */
gqac_status loop_infer_rows(ir_node *node, const ir_graph *body, int result, int output,
                            int64_t axis, const ir_dim *count, gqac_diag *diag);
/* INVALID_MODEL unless the body has that many inputs and results. */
gqac_status loop_verify(const ir_node *node, const ir_graph *body, int n_args, int n_results,
                        gqac_diag *diag);

#endif
