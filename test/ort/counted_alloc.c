/* The allocator of the C library for the provider under test, which is linked with --wrap: calls
 * and live allocations are counted, and the n-th call fails. Several threads may call it. */
#include "counted_alloc.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_size_t live, calls, fail_at, bytes_now, bytes_most;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
void __wrap_free(void *memory);
char *__wrap_strdup(const char *text);

void counted_fail_at(size_t n) {
    atomic_store(&calls, 0);
    atomic_store(&bytes_most, atomic_load(&bytes_now));
    atomic_store(&fail_at, n);
}

size_t counted_calls(void) {
    return atomic_load(&calls);
}

size_t counted_peak(void) {
    return atomic_load(&bytes_most);
}

size_t counted_live(void) {
    return atomic_load(&live);
}

static bool refuse(void) {
    return atomic_fetch_add(&calls, 1) + 1 == atomic_load(&fail_at);
}

static void *sized(void *memory) {
    const size_t bytes = memory ? malloc_usable_size(memory) : 0;
    const size_t now = atomic_fetch_add(&bytes_now, bytes) + bytes;
    size_t most = atomic_load(&bytes_most);
    while (now > most && !atomic_compare_exchange_weak(&bytes_most, &most, now))
        ;
    return memory;
}

static void *born(void *memory) {
    if (memory)
        atomic_fetch_add(&live, 1);
    return sized(memory);
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
    const size_t before = old ? malloc_usable_size(old) : 0;
    void *memory = __real_realloc(old, bytes);
    if (memory)
        atomic_fetch_sub(&bytes_now, before);
    return old ? sized(memory) : born(memory);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    const int error = refuse() ? 12 : __real_posix_memalign(memory, alignment, bytes);
    if (!error)
        (void)born(*memory);
    return error;
}

char *__wrap_strdup(const char *text) {
    char *copy = __wrap_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

void __wrap_free(void *memory) {
    if (memory) {
        atomic_fetch_sub(&live, 1);
        atomic_fetch_sub(&bytes_now, malloc_usable_size(memory));
    }
    __real_free(memory);
}
