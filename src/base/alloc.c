/* Memory allocation: the C library's allocator, and in -DGQAC_TEST_ALLOC builds a counter that can
 * fail the n-th call. The counters are the only mutable globals, and exist only there. */
#include "base/alloc.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

#ifdef GQAC_TEST_ALLOC
#include <stdatomic.h>

static atomic_size_t calls, live, fail_at;
static atomic_bool persistent;

void gqac_alloc_fail_at(size_t n, int persist) {
    atomic_store(&fail_at, 0);
    atomic_store(&calls, 0);
    atomic_store(&persistent, persist != 0);
    atomic_store(&fail_at, n);
}

size_t gqac_alloc_calls(void) {
    return atomic_load(&calls);
}

size_t gqac_alloc_live(void) {
    return atomic_load(&live);
}

static bool refuse(void) {
    size_t call = atomic_fetch_add(&calls, 1) + 1;
    size_t n = atomic_load(&fail_at);
    return n != 0 && (call == n || (call > n && atomic_load(&persistent)));
}

static void *born(void *memory) {
    if (memory)
        atomic_fetch_add(&live, 1);
    return memory;
}

static void died(const void *memory) {
    if (memory)
        atomic_fetch_sub(&live, 1);
}
#else
static inline bool refuse(void) {
    return false;
}
static inline void *born(void *memory) {
    return memory;
}
static inline void died(const void *memory) {
    (void)memory;
}
#endif

void *gqac_alloc(size_t bytes) {
    if (refuse())
        return NULL;
    return born(malloc(bytes ? bytes : 1));
}

void *gqac_calloc(size_t count, size_t size) {
    size_t bytes;
    if (refuse() || !gqac_mul_size(count, size, &bytes))
        return NULL;
    return born(calloc(1, bytes ? bytes : 1));
}

void *gqac_realloc(void *old, size_t bytes) {
    if (!old)
        return gqac_alloc(bytes);
    if (refuse())
        return NULL;
    return realloc(old, bytes ? bytes : 1);
}

void *gqac_aligned_alloc(size_t alignment, size_t bytes) {
    void *memory = NULL;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (refuse() || posix_memalign(&memory, alignment, bytes ? bytes : 1) != 0)
        return NULL;
    return born(memory);
}

enum { DATA_ALIGNMENT = 64 };

void *gqac_data_alloc(size_t bytes) {
    if (bytes < 2 * (size_t)GQAC_HUGE_PAGE)
        return gqac_aligned_alloc(DATA_ALIGNMENT, bytes);
    void *memory = gqac_aligned_alloc(GQAC_HUGE_PAGE, bytes);
    if (memory) /* a hint; the last part gets none, because most of its huge page would be unused */
        (void)madvise(memory, bytes & ~(size_t)(GQAC_HUGE_PAGE - 1), MADV_HUGEPAGE);
    return memory;
}

bool gqac_grow(void *array, size_t need, size_t *capacity, size_t size) {
    enum { LEAST = 16 };
    const size_t twice = *capacity > SIZE_MAX / 2 ? need : 2 * *capacity;
    const size_t next = need > twice ? need : twice < LEAST ? LEAST : twice;
    size_t bytes;
    void *memory;
    if (!gqac_mul_size(next, size, &bytes))
        return false;
    memcpy(&memory, array, sizeof memory);
    memory = gqac_realloc(memory, bytes);
    if (!memory)
        return false;
    memcpy(array, &memory, sizeof memory);
    *capacity = next;
    return true;
}

void gqac_free(void *memory) {
    died(memory);
    free(memory);
}
