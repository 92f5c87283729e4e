/* Public structs that begin with their size, as the caller compiled them. An older caller's struct
 * is shorter, and fields that it lacks have their defaults; a newer caller's is longer, and fields
 * that this library does not know must be zero. All sizes are multiples of sizeof(size_t). */
#ifndef GQAC_BASE_SIZED_H
#define GQAC_BASE_SIZED_H

#include "base/diag.h"

#include <stddef.h>

/* Copies `given`, a struct `name` of the caller, over `own`, which has `size` bytes and holds the
 * defaults; given NULL: the defaults stay. The first field of `own` is `size` afterwards. USAGE: an
 * impossible size, or a field that only a newer library knows is not zero. */
gqac_status gqac_sized_take(void *own, size_t size, const void *given, const char *name,
                            gqac_diag *diag);
/* The other direction: fills as much of `out` as the caller's struct has of `own`. `out` keeps its
 * size; fields that only a newer library knows are set to 0. USAGE: an impossible size. */
gqac_status gqac_sized_give(void *out, const void *own, size_t size, const char *name,
                            gqac_diag *diag);

#endif
