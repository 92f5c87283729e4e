/* Arenas: a list of chunks, filled from the front.
 *
 * A request that is large compared with a chunk gets a chunk of its own, linked before the current
 * one, so that the rest of the current chunk can still be used. Data have chunks of their own,
 * which are large enough for huge pages. Reset rewinds every chunk and starts again with the first.
 * Under the address sanitizer, bytes that are not allocated are poisoned, so that an overrun into a
 * neighbouring allocation of the same chunk is found. */
#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define HIDE(memory, bytes) ASAN_POISON_MEMORY_REGION((memory), (bytes))
#define SHOW(memory, bytes) ASAN_UNPOISON_MEMORY_REGION((memory), (bytes))
#else
#define HIDE(memory, bytes) ((void)0)
#define SHOW(memory, bytes) ((void)0)
#endif

enum {
    ALIGN = 16,
    DATA_ALIGN = 64,
    CHUNK = 64 * 1024,
    LARGE = CHUNK / 4,
    DATA_CHUNK = 32 << 20, /* maximum of a chunk for data, unless a request is larger */
    POISON = 0xDD,
};

typedef struct chunk {
    struct chunk *next;
    size_t size; /* bytes after the header */
    size_t used;
} chunk;

/* The size of the header, padded so that the data after it are aligned. */
enum { HEADER = (sizeof(chunk) + ALIGN - 1) / ALIGN * ALIGN };
enum { DATA_GAP = DATA_ALIGN - HEADER }; /* bytes between header and data */

struct gqac_arena {
    chunk *first;
    chunk *current; /* chunks before it are full, except for small requests */
    chunk *data;    /* chunks for data, the latest first */
    size_t n_data;  /* bytes of data handed out */
    size_t budget;
    size_t used;
    size_t refused; /* by the budget, last */
};

static unsigned char *chunk_data(chunk *c) {
    return (unsigned char *)c + HEADER;
}

gqac_arena *gqac_arena_create(size_t budget) {
    gqac_arena *arena = gqac_calloc(1, sizeof *arena);
    if (arena)
        arena->budget = budget;
    return arena;
}

static void free_chunks(chunk *first) {
    for (chunk *c = first, *next; c; c = next) {
        next = c->next;
        SHOW(chunk_data(c), c->size);
        gqac_free(c);
    }
}

void gqac_arena_free(gqac_arena *arena) {
    if (!arena)
        return;
    free_chunks(arena->first);
    free_chunks(arena->data);
    gqac_free(arena);
}

static void reset_chunks(chunk *first, size_t used) {
    for (chunk *c = first; c; c = c->next) {
#ifdef GQAC_POISON
        SHOW(chunk_data(c), c->size);
        memset(chunk_data(c), POISON, c->used);
#endif
        HIDE(chunk_data(c), c->size);
        c->used = used;
    }
}

void gqac_arena_reset(gqac_arena *arena) {
    reset_chunks(arena->first, 0);
    reset_chunks(arena->data, DATA_GAP);
    arena->current = arena->first;
    arena->n_data = 0;
    arena->used = 0;
}

static chunk *chunk_create(size_t need) {
    size_t size = need > LARGE ? need : CHUNK;
    size_t bytes;
    if (!gqac_add_size(size, HEADER, &bytes))
        return NULL;
    chunk *c = gqac_aligned_alloc(ALIGN, bytes);
    if (!c)
        return NULL;
    *c = (chunk){.size = size};
    HIDE(chunk_data(c), c->size);
    return c;
}

/* A chunk with `need` free bytes; NULL: out of memory. */
static chunk *chunk_for(gqac_arena *arena, size_t need) {
    for (chunk *c = arena->current; c; c = c->next) {
        if (need <= c->size - c->used) {
            if (need <= LARGE)
                arena->current = c;
            return c;
        }
    }
    chunk *c = chunk_create(need);
    if (!c)
        return NULL;
    if (need > LARGE || !arena->current) {
        c->next = arena->first;
        arena->first = c;
        if (!arena->current)
            arena->current = c;
    } else {
        c->next = arena->current->next;
        arena->current->next = c;
        arena->current = c;
    }
    return c;
}

/* Rounds a request up to a multiple of `align`; false: it overflows, or exceeds the budget. */
static bool fits(gqac_arena *arena, size_t bytes, size_t align, size_t *need) {
    if (!gqac_add_size(bytes ? bytes : 1, align - 1, need))
        return false;
    *need = *need / align * align;
    if (!arena->budget || *need <= arena->budget - arena->used)
        return true;
    arena->refused = *need;
    return false;
}

static void *take(gqac_arena *arena, chunk *c, size_t need, size_t bytes) {
    unsigned char *memory = chunk_data(c) + c->used;
    c->used += need;
    arena->used += need;
    SHOW(memory, bytes);
    (void)bytes; /* used by SHOW alone */
    return memory;
}

void *gqac_arena_alloc(gqac_arena *arena, size_t bytes) {
    size_t need;
    if (!fits(arena, bytes, ALIGN, &need))
        return NULL;
    chunk *c = chunk_for(arena, need);
    return c ? take(arena, c, need, bytes) : NULL;
}

/* ---- data ---------------------------------------------------------------- */

static chunk *data_chunk_create(size_t bytes) {
    chunk *c = gqac_data_alloc(bytes);
    if (!c)
        return NULL;
    *c = (chunk){.size = bytes - HEADER, .used = DATA_GAP};
    HIDE(chunk_data(c), c->size);
    return c;
}

/* A new chunk with room for `need` bytes of data. Large chunks consist of whole huge pages. They
 * have as many bytes as all data before them, so that little data take little memory. */
static chunk *data_chunk_for(gqac_arena *arena, size_t need) {
    const size_t before = arena->n_data < DATA_CHUNK ? arena->n_data : DATA_CHUNK;
    size_t least, whole;
    if (!gqac_add_size(need, DATA_ALIGN, &least) ||
        !gqac_add_size(least > before ? least : before, GQAC_HUGE_PAGE - 1, &whole))
        return NULL;
    whole -= whole % GQAC_HUGE_PAGE;
    chunk *c = whole > GQAC_HUGE_PAGE ? data_chunk_create(whole) : NULL;
    if (!c)
        c = data_chunk_create(least);
    if (!c)
        return NULL;
    c->next = arena->data;
    return arena->data = c;
}

void *gqac_arena_data(gqac_arena *arena, size_t bytes) {
    size_t need;
    if (!fits(arena, bytes, DATA_ALIGN, &need))
        return NULL;
    chunk *c = arena->data;
    while (c && need > c->size - c->used)
        c = c->next;
    if (!c && !(c = data_chunk_for(arena, need)))
        return NULL;
    arena->n_data += need;
    return take(arena, c, need, bytes);
}

/* ---- copies and texts ---------------------------------------------------- */

void *gqac_arena_calloc(gqac_arena *arena, size_t count, size_t size) {
    size_t bytes;
    if (!gqac_mul_size(count, size, &bytes))
        return NULL;
    void *memory = gqac_arena_alloc(arena, bytes);
    if (memory && bytes)
        memset(memory, 0, bytes);
    return memory;
}

void *gqac_arena_copy(gqac_arena *arena, const void *data, size_t bytes) {
    void *memory = gqac_arena_alloc(arena, bytes);
    if (memory && bytes)
        memcpy(memory, data, bytes);
    return memory;
}

char *gqac_arena_strdup(gqac_arena *arena, const char *text) {
    return gqac_arena_strndup(arena, text, strlen(text));
}

char *gqac_arena_strndup(gqac_arena *arena, const char *text, size_t length) {
    size_t bytes;
    if (!gqac_add_size(length, 1, &bytes))
        return NULL;
    char *copy = gqac_arena_alloc(arena, bytes);
    if (!copy)
        return NULL;
    if (length)
        memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *gqac_arena_printf(gqac_arena *arena, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length < 0)
        return NULL;
    size_t bytes = (size_t)length + 1;
    char *text = gqac_arena_alloc(arena, bytes);
    if (!text)
        return NULL;
    va_start(args, fmt);
    vsnprintf(text, bytes, fmt, args);
    va_end(args);
    return text;
}

size_t gqac_arena_used(const gqac_arena *arena) {
    return arena->used;
}

size_t gqac_arena_refused(const gqac_arena *arena) {
    return arena->refused;
}
