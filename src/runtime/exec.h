/* Running a graph node by node: frames of tensors, buffers by plan slot. */
#ifndef GQAC_RUNTIME_EXEC_H
#define GQAC_RUNTIME_EXEC_H

#include "base/pool.h"
#include "runtime/program.h"

/* Memory that grows and is kept from run to run. */
typedef struct exec_buffer {
    void *data;
    size_t capacity;
} exec_buffer;

typedef struct exec {
    const gqac_program *program;
    gqac_pool *pool;
    gqac_tensor *values;   /* by ir_value.id */
    exec_buffer *slots;    /* by plan slot */
    exec_buffer *owned;    /* by ir_value.id, for values without a slot */
    exec_buffer *unwanted; /* by output index: outputs that nobody uses */
    kv_batch *kv;          /* of the running step; NULL in a stateless run */
    void (*observe)(void *arg, const struct exec *e, const ir_node *node); /* after each; or NULL */
    void *observe_arg;
} exec;

gqac_status exec_create(const gqac_program *program, int threads, exec *e, gqac_diag *diag);
void exec_destroy(exec *e);

/* Runs the whole main graph; its inputs must have been put with exec_set_input. */
gqac_status exec_run(exec *e, gqac_diag *diag);
/* Computes the condition of a guard from gqac.total_len alone. */
gqac_status exec_guard(exec *e, int guard, bool *taken, gqac_diag *diag);
/* The tensor's data is a view and must live until the run ends. */
void exec_set_input(exec *e, int index, const gqac_tensor *tensor);
const gqac_tensor *exec_result(const exec *e, int index);

#endif
