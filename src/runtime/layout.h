/* Where the values of a run lie in the arena of their context. Values come in the order in which
 * kernels make them, each takes the lowest gap that is large enough, and gives it back behind its
 * last user. The places follow from the order and the sizes alone, so the same code tells how much
 * a run is going to need. */
#ifndef GQAC_RUNTIME_LAYOUT_H
#define GQAC_RUNTIME_LAYOUT_H

#include "ir/ir.h"

typedef struct layout_piece {
    int slot;            /* of the values that it holds, one after another */
    size_t at, bytes;    /* bytes: a multiple of 64 */
    const ir_node *last; /* behind this node it is free */
    void *apart;         /* memory of its own, for the executor: the arena was too small */
} layout_piece;

typedef struct layout {
    layout_piece *live; /* by address */
    int n, capacity;
    size_t most; /* bytes of an arena that would have held all so far */
} layout;

/* The piece for a value of the slot that is read until `last`: that of the operand it is written
 * over (*over), or a new one. NULL when the list is full. */
layout_piece *layout_put(layout *l, int slot, const ir_node *last, size_t bytes, bool *over);
/* Gives back a piece that ends with the node: a copy of it, until there is none left. */
bool layout_end(layout *l, const ir_node *node, layout_piece *ended);

#endif
