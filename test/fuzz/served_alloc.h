/* Allocations of a server (served.h), of the library, of jansson and of libevent, which are counted
 * and fail on demand: by --wrap of malloc, calloc, realloc, posix_memalign, strdup and free. */
#ifndef GQAC_TEST_FUZZ_SERVED_ALLOC_H
#define GQAC_TEST_FUZZ_SERVED_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* Whether this thread runs the code of the server: only then are calls counted, and fail. */
void served_alloc_within(bool inside);
/* Allocation number n (from 1) fails, and, with `persist`, so does every later one. */
void served_alloc_set(size_t n, bool persist);
/* Stops this, and returns how many calls there were. */
size_t served_alloc_end(void);
/* Number of blocks of the process that are allocated and not freed. */
long served_alloc_live(void);

#endif
