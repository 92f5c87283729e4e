/* Memory allocation. Every allocation of the library goes through these functions, so that a build
 * with -DGQAC_TEST_ALLOC can count calls and fail the n-th. All return NULL when the system has no
 * memory (or a test makes the call fail) and never abort. For a size of 0 they return a valid
 * pointer. */
#ifndef GQAC_BASE_ALLOC_H
#define GQAC_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* In builds with assertions, and in builds that test allocation failures, uninitialised and freed
 * memory is filled with recognisable bytes. */
#if !defined(NDEBUG) || defined(GQAC_TEST_ALLOC)
#define GQAC_POISON 1
#endif

void *gqac_alloc(size_t bytes);
void *gqac_calloc(size_t count, size_t size); /* zeroed; NULL when count * size overflows */
void *gqac_realloc(void *old, size_t bytes);
void *gqac_aligned_alloc(size_t alignment, size_t bytes); /* freed with gqac_free */
/* For the data of tensors and caches: aligned to 64 bytes. Large data lie on huge pages if the
 * machine has them, except for a last part that does not fill one. Freed with gqac_free. */
enum { GQAC_HUGE_PAGE = 2 << 20 };
void *gqac_data_alloc(size_t bytes);
void gqac_free(void *memory);
/* Grows an array so that it can hold `need` elements of `size` bytes; if it grows, its capacity at
 * least doubles. `array` is the address of the pointer to it. False: out of memory, and nothing has
 * changed. */
bool gqac_grow(void *array, size_t need, size_t *capacity, size_t size);
static inline bool gqac_reserve(void *array, size_t need, size_t *capacity, size_t size) {
    return need <= *capacity || gqac_grow(array, need, capacity, size);
}

#ifdef GQAC_TEST_ALLOC
/* Starts counting calls; the n-th (from 1) fails, and with `persist` every later one too. n = 0:
 * calls are only counted. */
void gqac_alloc_fail_at(size_t n, int persist);
size_t gqac_alloc_calls(void); /* calls since gqac_alloc_fail_at */
size_t gqac_alloc_live(void);  /* allocations not yet freed */
#endif

#endif
