/* A context: the executor, the logits of the last step and scratch. */
#ifndef GQAC_RUNTIME_CONTEXT_H
#define GQAC_RUNTIME_CONTEXT_H

#include "runtime/exec.h"
#include "runtime/sequence.h"

struct gqac_context {
    const gqac_program *program;
    exec exec;
    exec_buffer scratch[6];  /* what a group of a step is fed, and arrays over the step */
    exec_buffer logits;      /* fp32 rows of the last step, row after row */
    exec_buffer logit_rows;  /* int64 [n][2]: first row and rows of each item of that step */
    gqac_observer *observer; /* see gqac_context_observe */
    void *observer_arg;
    const float *rows; /* of the last step: those of `logits`, or of the graph's result */
    int n_logits;
    int64_t vocabulary;
    gqac_tensor *parameters; /* by input, data NULL: none; the whole is NULL before the first */
    bool ran;                /* a stateless run has succeeded and its outputs are there */
};

/* May a tensor of that type and shape be the input? Its data are not looked at. */
gqac_status context_check_input(const gqac_context *context, int index, const gqac_tensor *tensor,
                                gqac_diag *diag);
/* An output of the last run, with the memory that is bound to it. */
gqac_tensor context_output(const gqac_context *context, int index);
void context_free_parameters(gqac_context *context);

#endif
