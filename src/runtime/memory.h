/* How much memory a run needs, by the types of the graph. */
#ifndef GQAC_RUNTIME_MEMORY_H
#define GQAC_RUNTIME_MEMORY_H

#include "runtime/layout.h"
#include "runtime/program.h"

typedef struct memory_lengths {
    int64_t sequences, batch, chunk; /* shape of the ids: [batch,chunk]; packed: [1,N] */
    int64_t tokens;                  /* the value of every other length: the number of keys */
    int64_t logit_rows;              /* logits of all sequences */
} memory_lengths;

/* Places the values of a run in `l`, which must be empty; l->most is then the size of the arena.
 * Sets *apart, unless NULL, to the bytes of the results of the graph, which lie outside the
 * arena. Values of nested graphs, and values of unknown type, are not counted. False: a size
 * overflows. */
bool memory_lay_out(const gqac_program *program, const memory_lengths *lengths, layout *l,
                    int64_t *apart);

/* Sets *bytes to the largest scratch that any kernel with a target_kernel.scratch needs in a call
 * of one sequence with that many threads. Kernels of nested graphs, and those whose operands have
 * unknown types or do not fit, are not counted. *ok becomes false if a size overflows.
 * NO_MEMORY. */
gqac_status memory_scratch(const gqac_program *program, const memory_lengths *lengths, int threads,
                           bool *ok, int64_t *bytes, gqac_diag *diag);

#endif
