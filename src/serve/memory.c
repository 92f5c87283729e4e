/* See memory.h.
 *
 * jansson reads a value into a buffer whose size doubles, from 16 bytes on, and does not check
 * whether that succeeded. So blocks of such sizes come from a reserve when there is no other
 * memory. The next block of another size fails, which jansson does check, and which ends the call.
 * The buffers that one text can ask for are less than four times its length, and other blocks of
 * such sizes less than that again. */
#include "serve/memory.h"

#include <event2/event.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LEAST = 32, GROWTH = 8, BESIDE = 1 << 20 };

/* Of the thread of connections; there is one in a process. */
static char *reserve;
static size_t capacity, used, blocks;

static _Thread_local bool watched; /* memory_begin was called */
static _Thread_local size_t failures, before;

static bool in_reserve(const void *memory) {
    const uintptr_t at = (uintptr_t)memory, begin = (uintptr_t)reserve;
    return at >= begin && at - begin < capacity;
}

static void *take_reserve(size_t bytes) {
    if (bytes < LEAST || (bytes & (bytes - 1)) || bytes > capacity - used)
        return NULL;
    used += bytes;
    blocks++;
    return reserve + used - bytes;
}

static void *json_allocate(size_t bytes) {
    void *made = watched && memory_ran_out() ? NULL : malloc(bytes);
    if (made)
        return made;
    failures++;
    return watched ? take_reserve(bytes) : NULL;
}

static void json_release(void *memory) {
    if (!in_reserve(memory))
        free(memory);
    else if (!--blocks)
        used = 0;
}

static void *event_allocate(size_t bytes) {
    void *made = malloc(bytes);
    failures += !made;
    return made;
}

static void *event_reallocate(void *old, size_t bytes) {
    void *made = realloc(old, bytes);
    failures += !made;
    return made;
}

bool memory_open(size_t longest) {
    const size_t wanted = GROWTH * longest + BESIDE;
    if (wanted > capacity) {
        if (reserve)
            munmap(reserve, capacity);
        reserve = mmap(NULL, wanted, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserve == MAP_FAILED)
            reserve = NULL;
        capacity = reserve ? wanted : 0;
    }
    json_set_alloc_funcs(json_allocate, json_release);
    event_set_mem_functions(event_allocate, event_reallocate, free);
    return reserve;
}

void memory_begin(void) {
    watched = true;
    before = failures;
}

bool memory_ran_out(void) {
    return failures != before;
}

void memory_note(void) {
    failures++;
}

size_t memory_failures(void) {
    return failures;
}
