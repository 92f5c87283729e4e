/* Typed arrays in one piece of memory.
 *
 * A function of the user takes every array from a gqac_parts, so that each size is written only
 * once. It is called twice: first without a base, to measure the bytes, then with a base of that
 * many bytes, to set the pointers. */
#ifndef GQAC_BASE_PARTS_H
#define GQAC_BASE_PARTS_H

#include "base/check.h"

enum { GQAC_PARTS_ALIGNMENT = 64 };

typedef struct gqac_parts {
    unsigned char *base; /* NULL: measure */
    size_t bytes;        /* taken so far */
    bool overflow;
} gqac_parts;

/* The next array; NULL while measuring. */
static inline void *gqac_parts_take(gqac_parts *parts, int64_t count, size_t size) {
    const size_t at = parts->bytes, least = GQAC_PARTS_ALIGNMENT - 1;
    size_t n = 0;
    if (count < 0 || !gqac_mul_size((size_t)count, size, &n) || !gqac_add_size(n, least, &n) ||
        !gqac_add_size(at, n & ~least, &parts->bytes))
        parts->overflow = true;
    return parts->base ? parts->base + at : NULL;
}

#endif
