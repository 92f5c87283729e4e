/* The executor and the mirror of a target whose kernels leave values in the memory of a device:
 * values are copied to the host before it reads them, and the mirror is notified of values that the
 * host has written. For other targets these functions do nothing. */
#ifndef GQAC_RUNTIME_EXEC_DEVICE_H
#define GQAC_RUNTIME_EXEC_DEVICE_H

#include "runtime/exec.h"

gqac_status exec_fetch_values(const exec *e, const ir_node *node, gqac_diag *diag);
void exec_values_changed(const exec *e, const ir_node *node);
gqac_status exec_fetch_value(const exec *e, const ir_value *value, gqac_diag *diag);

/* Before the host reads a value (NULL: none). */
static inline gqac_status exec_fetch(const exec *e, const ir_value *value, gqac_diag *diag) {
    return e->mirror && value ? exec_fetch_value(e, value, diag) : GQAC_OK;
}

/* Before the host runs a node. */
static inline gqac_status exec_fetch_inputs(const exec *e, const ir_node *node, gqac_diag *diag) {
    return e->mirror ? exec_fetch_values(e, node, diag) : GQAC_OK;
}

/* After the host has run a node. */
static inline void exec_outputs_changed(const exec *e, const ir_node *node) {
    if (e->mirror)
        exec_values_changed(e, node);
}

/* At the end of a run that succeeded: the host gets the results, of logits possibly the likeliest
 * ids alone (exec.top), and the new rows of sequences. There must be a mirror. */
gqac_status exec_fetch_results(exec *e, gqac_diag *diag);
/* True if the logits are the wanted rows and no others, and a device can find the likeliest ids of
 * that many. */
bool exec_can_top(const gqac_tensor *logits, const exec_top *top);
/* True if the op only moves elements (IR_OP_MOVES), and these are on the device. There must be a
 * mirror. */
bool exec_is_moved(const exec *e, const ir_node *node);
/* op_call.move for such a node. */
gqac_status exec_move(op_call *call, const op_box *box);
/* Logs a line about the copies of the run. */
void exec_log_copies(const exec *e);

#endif
