/* A context: the executor, the logits of the last step and scratch. */
#ifndef GQAC_RUNTIME_CONTEXT_H
#define GQAC_RUNTIME_CONTEXT_H

#include "runtime/exec.h"
#include "runtime/sequence.h"

struct gqac_context {
    const gqac_program *program;
    exec exec;
    exec_buffer scratch[6];  /* token ids, positions, past, new, total of a call; batch arrays */
    exec_buffer logits;      /* fp32 rows of the last step, row after row */
    exec_buffer logit_rows;  /* int64 [n][2]: first row and rows of each sequence of that step */
    gqac_observer *observer; /* see gqac_context_observe */
    void *observer_arg;
    gqac_logits wanted; /* of the steps to come */
    const float *rows;  /* of the last step: those of `logits`, or of the graph's result */
    int n_logits;
    int64_t vocabulary;
};

#endif
