/* Graphs of one op for tests of ops: built from concrete tensors, typed, expanded to primitives and
 * evaluated node by node. Output memory initially contains NaN bytes. */
#ifndef GQAC_TEST_SUPPORT_GRAPH_H
#define GQAC_TEST_SUPPORT_GRAPH_H

#include "ops/op.h"

typedef struct graph_run {
    gqac_arena *arena;
    ir_module *module;
    ir_node *node; /* the op; gone after graph_run_expand */
    int n_inputs;
    gqac_tensor inputs[16];
    ir_value *values[16]; /* NULL: absent */
    int n_results;
    gqac_tensor results[8];
    gqac_diag diag;
} graph_run;

/* A node of this op with these inputs (NULL: absent); the caller sets the attributes. */
bool graph_run_open(graph_run *run, const char *domain, const char *name, int n_inputs,
                    const gqac_tensor *const *inputs, int n_outputs);
void graph_run_close(graph_run *run);
/* Verifies and infers the node. */
gqac_status graph_run_check(graph_run *run);
/* Expands until only primitives are left. */
gqac_status graph_run_expand(graph_run *run, const op_options *options);
/* Evaluates; results[i] is output i of the op. pool may be NULL. */
gqac_status graph_run_eval(graph_run *run, gqac_pool *pool);
/* check, expand and eval. */
gqac_status graph_run_all(graph_run *run, const op_options *options, gqac_pool *pool);

/* Numbers for tests: the same sequence for the same seed on every machine. */
typedef struct test_random {
    uint64_t state;
} test_random;
uint32_t test_random_bits(test_random *random);
int test_random_int(test_random *random, int lo, int hi); /* lo <= x <= hi */
float test_random_float(test_random *random);             /* about normal */

/* Tensors in `arena`. */
gqac_tensor test_tensor(gqac_arena *arena, gqac_dtype dtype, int rank, const int64_t *dims);
gqac_tensor test_floats(gqac_arena *arena, gqac_dtype dtype, int rank, const int64_t *dims,
                        test_random *random);
gqac_tensor test_ints(gqac_arena *arena, gqac_dtype dtype, int rank, const int64_t *dims,
                      const int64_t *values);

#endif
