/* What Loop and Scan share: a body that runs again and again on copies of what it gave, and results
 * of its runs laid side by side.
 *
 * Arguments of a run are [lead_args of the op's own, states, slices], results
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
    const gqac_tensor **args; /* lead_args and slices are the op's to set */
    void *memory;
} loop_frame;

/* The states start as inputs `first` on. Close it whatever it returns. */
gqac_status loop_open(op_call *call, const ir_graph *body, int lead_args, int lead_results,
                      int n_states, int first, loop_frame *frame);
/* INVALID_INPUT where an argument is not what the body declares: its nodes were compiled for that.
 * The host of the call bounds the runs (LIMIT). */
gqac_status loop_run_body(op_call *call, loop_frame *frame);
/* States become outputs 0 on. */
gqac_status loop_give_states(op_call *call, const loop_frame *frame);
/* Shape of the stacked results of row i, [count, ...]; without a run what the type says of it. */
gqac_status loop_rows_shape(op_call *call, const loop_frame *frame, int i, gqac_tensor *shape);
void loop_close(loop_frame *frame);

/* Types of the outputs that are states: those of the body that cannot change from run to run. */
gqac_status loop_infer_states(ir_node *node, const ir_graph *body, int lead_results, int n_states,
                              int first, gqac_diag *diag);
/* The type of an output that has the results of all runs along `axis`, of length `count`. */
gqac_status loop_infer_rows(ir_node *node, const ir_graph *body, int result, int output,
                            int64_t axis, const ir_dim *count, gqac_diag *diag);
/* INVALID_MODEL unless the body takes and gives that many values. */
gqac_status loop_verify(const ir_node *node, const ir_graph *body, int n_args, int n_results,
                        gqac_diag *diag);

#endif
