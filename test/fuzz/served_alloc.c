/* The functions for -Wl,--wrap; see served_alloc.h. */
#include "fuzz/served_alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local bool within;
static bool persistent;
static size_t calls, fail_at;
static atomic_long live; /* other threads of the server allocate too */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);

static bool refuse(void) {
    if (!within || !fail_at)
        return false;
    calls++;
    if (calls < fail_at || (calls > fail_at && !persistent))
        return false;
    errno = ENOMEM;
    return true;
}

static void *born(void *memory) {
    live += memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t bytes) {
    return refuse() ? NULL : born(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t size) {
    return refuse() ? NULL : born(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t bytes) {
    if (refuse())
        return NULL;
    return old ? __real_realloc(old, bytes) : born(__real_malloc(bytes));
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    const int error = refuse() ? ENOMEM : __real_posix_memalign(memory, alignment, bytes);
    live += !error;
    return error;
}

char *__wrap_strdup(const char *text) {
    char *copy = __wrap_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

void __wrap_free(void *memory) {
    live -= memory != NULL;
    __real_free(memory);
}

void served_alloc_within(bool inside) {
    within = inside;
}

void served_alloc_set(size_t n, bool persist) {
    calls = 0;
    fail_at = n;
    persistent = persist;
}

size_t served_alloc_end(void) {
    fail_at = 0;
    return calls;
}

long served_alloc_live(void) {
    return atomic_load(&live);
}
