/* Numbers of any float type as bytes, and memory that is filled with NaN before it is written. */
#ifndef GQAC_TEST_TARGETS_NUMBERS_H
#define GQAC_TEST_TARGETS_NUMBERS_H

#include "../unit.h"

#include <stdlib.h>
#include <string.h>

#include "ops/shared.h"

/* The same sequence in every run; each file chooses its beginning. */
static uint64_t state = NUMBERS_SEED;

static inline uint32_t bits(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static inline int64_t below(int64_t n) {
    return (int64_t)(bits() % (uint32_t)n);
}

static inline void put(void *to, size_t at, gqac_dtype dtype, float x) {
    gqac_tensor t = {.dtype = dtype, .rank = 1, .dims = {(int64_t)at + 1}, .data = to};
    op_put_f32(&t, (int64_t)at, x);
}

static inline float get(const void *from, size_t at, gqac_dtype dtype) {
    const gqac_tensor t = {
        .dtype = dtype, .rank = 1, .dims = {(int64_t)at + 1}, .data = (void *)(uintptr_t)from};
    return op_get_f32(&t, (int64_t)at);
}

static inline void *nans(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return memset(p, 0xff, bytes);
}

#endif
