/* Public structs that begin with their size, as the caller compiled them: an older caller's are
 * shorter, and what they lack has its default; a newer caller's are longer, and what this library
 * does not know must be unset there. All of them are whole multiples of a size_t. */
#ifndef GQAC_BASE_SIZED_H
#define GQAC_BASE_SIZED_H

#include "base/diag.h"

#include <stddef.h>

/* Copies `given`, a struct `name` of the caller's, over `own`, which has `size` bytes and holds the
 * defaults; NULL: the defaults are taken. own's first field is `size` afterwards. USAGE: a size
 * that no such struct has, or a field that only a newer library knows. */
gqac_status gqac_sized_take(void *own, size_t size, const void *given, const char *name,
                            gqac_diag *diag);
/* The other way: fills as much of `out` as the caller has of `own`; out keeps its size, and fields
 * that only a newer library knows are 0. */
gqac_status gqac_sized_give(void *out, const void *own, size_t size, const char *name,
                            gqac_diag *diag);

#endif
