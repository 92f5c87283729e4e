/* Arenas: a list of chunks, filled from the front.
 *
 * A request that is large compared with a chunk gets a chunk of its own, linked before the current
 * one, so that the rest of the current chunk can still be used. Reset rewinds every chunk and
 * starts again with the first. Under the address sanitizer, bytes that are not allocated are
 * poisoned, so that an overrun into a neighbouring allocation of the same chunk is found. */
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

enum { ALIGN = 16, CHUNK = 64 * 1024, LARGE = CHUNK / 4, POISON = 0xDD };

typedef struct chunk {
    struct chunk *next;
    size_t size; /* bytes after the header */
    size_t used;
} chunk;

/* The size of the header, padded so that the data after it are aligned. */
enum { HEADER = (sizeof(chunk) + ALIGN - 1) / ALIGN * ALIGN };

struct gqac_arena {
    chunk *first;
    chunk *current; /* chunks before it are full, except for small requests */
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

void gqac_arena_free(gqac_arena *arena) {
    if (!arena)
        return;
    for (chunk *c = arena->first, *next; c; c = next) {
        next = c->next;
        SHOW(chunk_data(c), c->size);
        gqac_free(c);
    }
    gqac_free(arena);
}

void gqac_arena_reset(gqac_arena *arena) {
    for (chunk *c = arena->first; c; c = c->next) {
#ifdef GQAC_POISON
        SHOW(chunk_data(c), c->size);
        memset(chunk_data(c), POISON, c->used);
#endif
        HIDE(chunk_data(c), c->size);
        c->used = 0;
    }
    arena->current = arena->first;
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

void *gqac_arena_alloc(gqac_arena *arena, size_t bytes) {
    size_t need;
    if (!gqac_add_size(bytes ? bytes : 1, ALIGN - 1, &need))
        return NULL;
    need = need / ALIGN * ALIGN;
    if (arena->budget && need > arena->budget - arena->used) {
        arena->refused = need;
        return NULL;
    }
    chunk *c = chunk_for(arena, need);
    if (!c)
        return NULL;
    unsigned char *memory = chunk_data(c) + c->used;
    c->used += need;
    arena->used += need;
    SHOW(memory, bytes);
    return memory;
}

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
