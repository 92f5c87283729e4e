/* How much memory a run takes, by the types of the graph. */
#ifndef GQAC_RUNTIME_MEMORY_H
#define GQAC_RUNTIME_MEMORY_H

#include "runtime/layout.h"
#include "runtime/program.h"

typedef struct memory_lengths {
    int64_t sequences, batch, chunk; /* batch rows, and new tokens of the longest; packed: 1, N */
    int64_t tokens;                  /* every length that is none of the others: that of the keys */
    int64_t logit_rows;              /* of all sequences */
} memory_lengths;

/* Puts the values of a run into `l`, which must be empty, so that l->most is what its arena needs.
 * Sets *apart, unless NULL, to the bytes of values that lie outside of it: results of
 * the graph, and the largest products that a kernel keeps for itself. Values of nested graphs, and
 * types that are not known, count as nothing. False when a size overflows. */
bool memory_lay_out(const gqac_program *program, const memory_lengths *lengths, layout *l,
                    int64_t *apart);

#endif
