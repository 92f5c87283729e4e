/* Where the values of a run lie in the arena of their context. Values are placed in the order in
 * which kernels make them; each takes the first gap that is large enough, and frees it after its
 * last user. Offsets depend only on order and sizes, so the same code computes how much memory a
 * run will need. */
#ifndef GQAC_RUNTIME_LAYOUT_H
#define GQAC_RUNTIME_LAYOUT_H

#include "ir/ir.h"

typedef struct layout_piece {
    int slot;            /* slot of the values that it holds, one after another */
    size_t at, bytes;    /* bytes: a multiple of 64 */
    const ir_node *last; /* after this node it is free */
    void *apart;         /* its own memory, if the arena of the executor was too small */
} layout_piece;

typedef struct layout {
    layout_piece *live; /* by address */
    int n, capacity;
    size_t most; /* bytes of an arena that is large enough for all pieces so far */
} layout;

/* The piece for a value of the slot that is read until `last`: the operand's piece if the value is
 * written over it (*over is true), or a new one. NULL: the list is full. */
layout_piece *layout_put(layout *l, int slot, const ir_node *last, size_t bytes, bool *over);
/* Frees one piece that ends with the node and copies it to *ended; false: there is no such
 * piece. */
bool layout_end(layout *l, const ir_node *node, layout_piece *ended);

#endif
