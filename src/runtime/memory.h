/* How much memory a run needs, by the types of the graph. */
#ifndef GQAC_RUNTIME_MEMORY_H
#define GQAC_RUNTIME_MEMORY_H

#include "runtime/layout.h"
#include "runtime/program.h"

typedef struct memory_lengths {
    int64_t sequences, batch, chunk; /* shape of the ids: [batch,chunk]; packed: [1,N] */
    int64_t tokens;                  /* every other length: that of the keys */
    int64_t logit_rows;              /* logits of all sequences */
} memory_lengths;

/* Places the values of a run in `l`, which must be empty; l->most is then the size of the arena.
 * Sets *apart, unless NULL, to the bytes of values outside the arena: results of the graph, and the
 * largest products that a kernel keeps in its scratch. Values of nested graphs, and values of
 * unknown type, are not counted. False: a size overflows. */
bool memory_lay_out(const gqac_program *program, const memory_lengths *lengths, layout *l,
                    int64_t *apart);

#endif
