/* First fit over the pieces in use, which are few: the values that live while one node of a layer
 * runs. */
#include "runtime/layout.h"

#include <stdint.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static layout_piece *find(layout *l, int slot) {
    for (int i = 0; i < l->n; i++)
        if (l->live[i].slot == slot)
            return &l->live[i];
    return NULL;
}

layout_piece *layout_put(layout *l, int slot, const ir_node *last, size_t bytes, bool *over) {
    layout_piece *piece = find(l, slot);
    *over = piece && bytes <= piece->bytes;
    if (*over) {
        piece->last = last;
        return piece;
    }
    if (l->n == l->capacity || bytes > SIZE_MAX / 4)
        return NULL;
    bytes = bytes ? (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1) : ALIGNMENT;
    size_t at = 0;
    int i = 0;
    for (; i < l->n && l->live[i].at - at < bytes; i++)
        at = l->live[i].at + l->live[i].bytes;
    piece = &l->live[i];
    memmove(piece + 1, piece, (size_t)(l->n - i) * sizeof *piece);
    *piece = (layout_piece){.slot = slot, .at = at, .bytes = bytes, .last = last};
    l->n++;
    if (at + bytes > l->most)
        l->most = at + bytes;
    return piece;
}

bool layout_end(layout *l, const ir_node *node, layout_piece *ended) {
    for (int i = 0; i < l->n; i++) {
        if (l->live[i].last != node)
            continue;
        *ended = l->live[i];
        memmove(&l->live[i], &l->live[i + 1], (size_t)(--l->n - i) * sizeof *ended);
        return true;
    }
    return false;
}
