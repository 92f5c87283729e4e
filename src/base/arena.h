/* Arenas: memory by lifetime (model, scratch, result). Allocations are not freed one by one;
 * freeing the arena frees them all. Not thread-safe. Alignment of every allocation is 16 bytes. */
#ifndef GQAC_BASE_ARENA_H
#define GQAC_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

#include "base/diag.h"

typedef struct gqac_arena gqac_arena;

/* Creates an arena. `budget` is the maximum number of bytes that it can allocate; 0: no maximum.
 * NULL: out of memory. */
gqac_arena *gqac_arena_create(size_t budget);
void gqac_arena_free(gqac_arena *arena); /* NULL is allowed */
/* Forgets all allocations but keeps (and with GQAC_POISON fills with 0xDD) the memory for reuse. */
void gqac_arena_reset(gqac_arena *arena);
/* Allocates bytes, uninitialised. NULL: out of memory, or the budget is exceeded. */
void *gqac_arena_alloc(gqac_arena *arena, size_t bytes);
/* The same for data that are read again and again, such as weights: aligned to 64 bytes, and next
 * to other data, so that all of them lie on huge pages if they are many and the machine has them.
 */
void *gqac_arena_data(gqac_arena *arena, size_t bytes);
void *gqac_arena_calloc(gqac_arena *arena, size_t count, size_t size); /* zeroed, checked product */
/* Copies in the arena; NULL: out of memory. */
void *gqac_arena_copy(gqac_arena *arena, const void *data, size_t bytes);
char *gqac_arena_strdup(gqac_arena *arena, const char *text);
char *gqac_arena_strndup(gqac_arena *arena, const char *text, size_t length);
char *gqac_arena_printf(gqac_arena *arena, const char *fmt, ...) GQAC_PRINTF(2, 3);
size_t gqac_arena_used(const gqac_arena *arena); /* bytes handed out */
/* Bytes that the budget refused last; 0: it has refused nothing. */
size_t gqac_arena_refused(const gqac_arena *arena);

#define GQAC_ARENA_NEW(arena, type) ((type *)gqac_arena_calloc((arena), 1, sizeof(type)))
#define GQAC_ARENA_ARRAY(arena, type, count)                                                       \
    ((type *)gqac_arena_calloc((arena), (count), sizeof(type)))

#endif
