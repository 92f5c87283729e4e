/* Shared by Loop and Scan: iterations of a body, states that are passed from one to the next, and
 * results that are stacked.
 *
 * An iteration ("run") has the arguments [lead_args (set by the op), states, slices] and the
 * results [lead_results, states, rows]. */
#ifndef GQAC_OPS_LOOP_H
#define GQAC_OPS_LOOP_H

#include "ops/shared.h"

typedef struct loop_value {
    gqac_tensor tensor; /* data is owned and has `capacity` bytes */
    size_t capacity;
} loop_value;

typedef struct loop_frame {
    const ir_graph *body;
    int lead_args, lead_results, n_states, n_rows;
    loop_value *now, *next; /* states before and after a run */
    loop_value *rows;       /* [count, ...], rank 0 before the first */
    int64_t count;          /* number of runs so far */
    gqac_tensor *results;
    const gqac_tensor **args; /* the op sets lead_args and slices */
    void *memory;
} loop_frame;

/* Initialises the states from the inputs from `first` on. loop_close must be called even after a
 * failure. */
gqac_status loop_open(op_call *call, const ir_graph *body, int lead_args, int lead_results,
                      int n_states, int first, loop_frame *frame);
/* Runs the body once. INVALID_INPUT: the type of an argument is not the declared one, for which the
 * body was compiled; LIMIT: there were too many runs. */
gqac_status loop_run_body(op_call *call, loop_frame *frame);
/* Stores the states in the outputs from 0 on. */
gqac_status loop_give_states(op_call *call, const loop_frame *frame);
/* Sets the shape [count, ...] of the stacked results of row i; if there was no run, it follows from
 * the type. */
gqac_status loop_rows_shape(op_call *call, const loop_frame *frame, int i, gqac_tensor *shape);
void loop_close(loop_frame *frame);

/* Sets the types of outputs that are states: the parts of their types that do not change from run
 * to run. */
gqac_status loop_infer_states(ir_node *node, const ir_graph *body, int lead_results, int n_states,
                              int first, gqac_diag *diag);
/* Sets the type of an output that stacks the results of all runs along `axis`, of length
 * `count`. */
gqac_status loop_infer_rows(ir_node *node, const ir_graph *body, int result, int output,
                            int64_t axis, const ir_dim *count, gqac_diag *diag);
/* INVALID_MODEL: the body does not have that many inputs and results. */
gqac_status loop_verify(const ir_node *node, const ir_graph *body, int n_args, int n_results,
                        gqac_diag *diag);

#endif
