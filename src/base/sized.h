/* Public structs that begin with their size when the caller was compiled. An older caller's struct
 * is shorter, and fields that it lacks have their defaults; a newer caller's is longer, and fields
 * that this library does not know must be zero. All sizes are multiples of sizeof(size_t). */
#ifndef GQAC_BASE_SIZED_H
#define GQAC_BASE_SIZED_H

#include "base/diag.h"

#include <stddef.h>

/* Copies `given`, a struct `name` of the caller, over `own`, which has `size` bytes and holds the
 * defaults; given NULL: the defaults stay. The first field of `own` is `size` afterwards. USAGE:
 * the size is not that of any version of the struct, or a field that this library does not know is
 * not zero. */
gqac_status gqac_sized_take(void *own, size_t size, const void *given, const char *name,
                            gqac_diag *diag);
/* The other direction: fills those fields of the caller's struct `out` that it has, from `own`.
 * `out` keeps its size; fields that this library does not know are set to 0. USAGE: the size is not
 * that of any version of the struct. */
gqac_status gqac_sized_give(void *out, const void *own, size_t size, const char *name,
                            gqac_diag *diag);

#endif
