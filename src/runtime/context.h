/* A context: executor, scratch of steps, logits of the last step, and parameters of stateless
 * runs. */
#ifndef GQAC_RUNTIME_CONTEXT_H
#define GQAC_RUNTIME_CONTEXT_H

#include "runtime/exec.h"
#include "runtime/sequence.h"

/* The rows of logits of one item of a step. */
typedef struct context_rows {
    int64_t first, count; /* among all rows of the step */
    bool top;             /* the item gets the likeliest ids of these rows instead of logits */
} context_rows;

struct gqac_context {
    const gqac_program *program;
    exec exec;
    exec_buffer items;       /* of a step: step_item */
    exec_buffer group;       /* of the group that runs: step_group */
    exec_buffer logits;      /* fp32 rows of the last step, row after row */
    exec_buffer top;         /* gqac_candidate: n_top of each of these rows */
    exec_buffer logit_rows;  /* context_rows of each item of that step */
    gqac_observer *observer; /* see gqac_context_observe */
    void *observer_arg;
    const float *rows; /* logits of the last step: `logits`, or the graph's result */
    int n_logits;
    int64_t vocabulary;
    int64_t n_top;           /* number of likeliest ids of a row */
    gqac_tensor *parameters; /* by input, data NULL: not set; NULL before the first is set */
    int64_t looks;           /* number of times that steps looked at an item to check it */
    bool ran;                /* a stateless run has succeeded, and its outputs are valid */
};

/* IO: a file that holds constants of the program was truncated after it was opened. A read of the
 * lost part would end the process, so runs and steps check this first. */
gqac_status context_check_files(const gqac_context *context, gqac_diag *diag);
/* Checks that the input can have that type and shape. Data are not read. */
gqac_status context_check_input(const gqac_context *context, int index, const gqac_tensor *tensor,
                                gqac_diag *diag);
/* Collects the inputs of a run, given or parameters, in the order of the graph, and checks them as
 * gqac_run does; with `data` false, tensors may have no data. */
gqac_status context_take_inputs(const gqac_context *context, int n, const char *const *names,
                                const gqac_tensor *tensors, bool data, gqac_tensor *taken,
                                gqac_diag *diag);
/* Sets *at to the index of the input `name`. USAGE: no such input, or the program is not
 * stateless. */
gqac_status context_find_input(const gqac_context *context, const char *name, int *at,
                               gqac_diag *diag);
/* Sets *at to the index of the output `name`; name NULL: to `index`. USAGE: no such output. */
gqac_status context_find_output(const gqac_context *context, const char *name, int index, int *at,
                                gqac_diag *diag);
/* An output of the last run, in the memory that is bound to it, if any. */
gqac_tensor context_output(const gqac_context *context, int index);
void context_free_parameters(gqac_context *context);

#endif
