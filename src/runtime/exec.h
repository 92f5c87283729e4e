/* The executor: runs a graph node by node, and holds the memory of its values. */
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

/* Grows the capacity to at least `bytes`; earlier contents are lost when it grows. It grows by at
 * least half; large buffers ask for huge pages. CAPACITY, NO_MEMORY for `what`. */
gqac_status exec_reserve(exec_buffer *buffer, size_t bytes, const char *what, gqac_diag *diag);

void exec_drop(exec_buffer *buffer);

/* Scratch of the nodes that run now, one piece after another. What does not fit is taken from the
 * system until its node ends; before the next run the buffer grows. */
typedef struct exec_scratch {
    exec_buffer buffer;
    size_t used, wanted;
    size_t taken, most; /* bytes in use, pieces of the system included; and their maximum so far */
    struct exec_extra *extra;
} exec_scratch;

/* Memory of the caller to which a result of the graph is bound. */
typedef struct exec_bound {
    void *data; /* NULL: none */
    size_t bytes;
    bool direct; /* kernels write there; else the result is copied at the end */
} exec_bound;

/* The likeliest ids of rows of logits, for which a device need not copy the rows. */
typedef struct exec_top {
    int result;   /* index of the logits */
    int64_t rows; /* number of rows that they must have */
    int64_t n;    /* ids of each row; 0: none are wanted */
    bool made;    /* set by the run: the ids are computed; the logits may be missing on the host */
    gqac_candidate *ids;
} exec_top;

typedef struct exec {
    const gqac_program *program;
    gqac_pool *pool;
    gqac_tensor *values;   /* by ir_value.id */
    exec_buffer arena;     /* of values that have a slot */
    layout layout;         /* the pieces of the arena */
    size_t machine;        /* gqac_machine_memory */
    int64_t expected[3];   /* see exec_expect */
    exec_buffer *owned;    /* by ir_value.id, for values without a slot */
    exec_buffer *unwanted; /* by output index: outputs that are not used */
    exec_scratch scratch;
    exec_bound *bound; /* by result index; NULL: no result is bound */
    gqac_poll poll;    /* of the context's calls */
    int64_t n_nodes;   /* nodes in a run of the main graph */
    int64_t share;     /* part of poll.total that belongs to the next run; see exec_share */
    size_t refused;    /* bytes that the budget refused in this run; 0: none */
    int nested;        /* nested graphs that this run has run so far */
    kv_batch *kv;      /* of the running step; NULL in a stateless run */
    exec_top top;      /* of the running step */
    void *mirror;      /* of target_mirror; NULL: the target has none */
    void (*observe)(void *arg, const struct exec *e, const ir_node *node); /* after each; or NULL */
    void *observe_arg;
} exec;

/* shared: threads of gqac_context_create_on; NULL: the executor starts `threads` of its own. */
gqac_status exec_create(const gqac_program *program, int threads, gqac_threads *shared, exec *e,
                        gqac_diag *diag);
void exec_destroy(exec *e);
/* Frees the memory that is kept from run to run, and forgets how much was needed. */
void exec_trim(exec *e);
/* Bytes of the budget that exec_trim gives back. */
size_t exec_bytes(const exec *e);

/* Announces the sizes of the next run, so that the arena has its size before the run begins. Does
 * nothing if a run of at least these sizes was announced before. */
void exec_expect(exec *e, const memory_lengths *lengths);
/* Sets the part of the call's progress that belongs to the next run; its nodes have equal parts of
 * it. */
void exec_share(exec *e, int64_t share);
/* Runs the whole main graph; its inputs must have been put with exec_set_input. ABORTED when the
 * monitor of the context ends it. */
gqac_status exec_run(exec *e, gqac_diag *diag);
/* Computes the condition of a guard from gqac.total_len alone. */
gqac_status exec_guard(exec *e, int guard, bool *taken, gqac_diag *diag);
/* The tensor's data are a view and must stay valid until the run ends. */
void exec_set_input(exec *e, int index, const gqac_tensor *tensor);
const gqac_tensor *exec_result(const exec *e, int index);

/* Binds a result to memory of the caller; data NULL: removes the binding. */
gqac_status exec_bind(exec *e, int result, void *data, size_t bytes, gqac_diag *diag);
/* Removes every binding to memory that is about to be freed. */
void exec_unbind(exec *e, const void *memory, size_t bytes);
/* Before a run with bound results, after its inputs were set: decides which results are written
 * directly. */
gqac_status exec_bind_check(exec *e, gqac_diag *diag);
/* After the run: copies the other bound results. */
gqac_status exec_bind_finish(exec *e, gqac_diag *diag);
/* The memory to which kernels write a result directly; NULL: the result is not bound, or copied. */
const exec_bound *exec_bind_of(const exec *e, const ir_value *value);

#endif
