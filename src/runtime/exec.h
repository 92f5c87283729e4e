/* Running a graph node by node: frames of tensors, and the arena that they lie in. */
#ifndef GQAC_RUNTIME_EXEC_H
#define GQAC_RUNTIME_EXEC_H

#include "base/budget.h"
#include "base/pool.h"
#include "runtime/layout.h"
#include "runtime/memory.h"

/* Memory that grows and is kept from run to run. */
typedef struct exec_buffer {
    void *data;
    size_t capacity;
    gqac_budget *budget; /* of the program */
} exec_buffer;

/* Room for `bytes`; earlier contents are lost when it grows. It grows by half at least, and large
 * buffers ask for huge pages. */
gqac_status exec_room(exec_buffer *buffer, size_t bytes, const char *what, gqac_diag *diag);

void exec_drop(exec_buffer *buffer);

/* Scratch of the nodes that run now, one behind another. What does not fit is taken from the
 * system until its node ends; then the buffer grows. */
typedef struct exec_scratch {
    exec_buffer buffer;
    size_t used, wanted;
    struct exec_extra *extra;
} exec_scratch;

/* Memory of the caller for a result of the graph. */
typedef struct exec_bound {
    void *data; /* NULL: none */
    size_t bytes;
    bool direct; /* kernels write there; else the result is copied at the end */
} exec_bound;

typedef struct exec {
    const gqac_program *program;
    gqac_pool *pool;
    gqac_tensor *values;   /* by ir_value.id */
    exec_buffer arena;     /* of values that have a slot */
    layout layout;         /* where in it */
    int64_t expected[3];   /* see exec_expect */
    exec_buffer *owned;    /* by ir_value.id, for values without a slot */
    exec_buffer *unwanted; /* by output index: outputs that nobody uses */
    exec_scratch scratch;
    exec_bound *bound; /* by result; NULL: no result is bound */
    gqac_poll poll;    /* of the context's calls */
    int64_t n_nodes;   /* that a run of the main graph goes through */
    int64_t share;     /* of poll.total that the next run is; see exec_share */
    size_t refused;    /* bytes that the budget had no room for in this run; 0: none */
    int nested;        /* runs of nested graphs in this run of the whole graph */
    kv_batch *kv;      /* of the running step; NULL in a stateless run */
    void (*observe)(void *arg, const struct exec *e, const ir_node *node); /* after each; or NULL */
    void *observe_arg;
} exec;

/* shared: see gqac_context_create_on; NULL: `threads` of its own. */
gqac_status exec_create(const gqac_program *program, int threads, gqac_threads *shared, exec *e,
                        gqac_diag *diag);
void exec_destroy(exec *e);

/* What the next run is going to be like: the arena gets its size before it begins, not after. Does
 * nothing when runs as large were expected already. */
void exec_expect(exec *e, const memory_lengths *lengths);
/* How much of what the call does the next run is: its nodes have equal parts in it. */
void exec_share(exec *e, int64_t share);
/* Runs the whole main graph; its inputs must have been put with exec_set_input. ABORTED when the
 * monitor of the context ends it. */
gqac_status exec_run(exec *e, gqac_diag *diag);
/* Computes the condition of a guard from gqac.total_len alone. */
gqac_status exec_guard(exec *e, int guard, bool *taken, gqac_diag *diag);
/* The tensor's data is a view and must live until the run ends. */
void exec_set_input(exec *e, int index, const gqac_tensor *tensor);
const gqac_tensor *exec_result(const exec *e, int index);

/* Binds a result to memory of the caller, or takes that back (data NULL). */
gqac_status exec_bind(exec *e, int result, void *data, size_t bytes, gqac_diag *diag);
/* Takes back every binding that lies in memory which is about to go. */
void exec_unbind(exec *e, const void *memory, size_t bytes);
/* Before a run with bound results, after its inputs were set: decides which are written directly.
 */
gqac_status exec_bind_check(exec *e, gqac_diag *diag);
/* After it: copies the others. */
gqac_status exec_bind_finish(exec *e, gqac_diag *diag);
/* Where kernels write a result: NULL when it is not bound, or not directly. */
const exec_bound *exec_bind_of(const exec *e, const ir_value *value);

#endif
