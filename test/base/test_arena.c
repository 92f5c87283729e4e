/* Arenas: alignment, budget, large requests, reset, poison, and what they do if memory runs out.
 * */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "unit.h"

/* Many sizes around the chunk size, each filled and checked at the end: no two overlap. */
static void allocations_do_not_overlap(void) {
    enum { N = 400 };
    static unsigned char *memory[N];
    static size_t sizes[N];
    gqac_arena *arena = gqac_arena_create(0);
    CU_ASSERT_FATAL(arena != NULL);
    for (int round = 0; round < 3; round++) {
        unsigned seed = 7u + (unsigned)round;
        for (int i = 0; i < N; i++) {
            seed = seed * 1664525u + 1013904223u;
            sizes[i] = i % 50 == 0 ? 60000 + seed % 20000 : seed % 3000;
            const bool data = i % 5 == 1;
            memory[i] = (data ? gqac_arena_data : gqac_arena_alloc)(arena, sizes[i]);
            CU_ASSERT_FATAL(memory[i] != NULL);
            CU_ASSERT_EQUAL((uintptr_t)memory[i] % (data ? 64 : 16), 0);
            memset(memory[i], i, sizes[i]);
        }
        for (int i = 0; i < N; i++)
            for (size_t k = 0; k < sizes[i]; k++)
                if (memory[i][k] != (unsigned char)i) {
                    CU_FAIL("overwritten");
                    break;
                }
        gqac_arena_reset(arena);
        CU_ASSERT_EQUAL(gqac_arena_used(arena), 0);
    }
    gqac_arena_free(arena);
    gqac_arena_free(NULL);
}

static void zero_size_is_valid(void) {
    gqac_arena *arena = gqac_arena_create(0);
    void *a = gqac_arena_alloc(arena, 0), *b = gqac_arena_alloc(arena, 0);
    CU_ASSERT(a && b && a != b);
    CU_ASSERT_PTR_NOT_NULL(gqac_arena_calloc(arena, 0, 100));
    CU_ASSERT_PTR_NOT_NULL(gqac_arena_copy(arena, NULL, 0));
    gqac_arena_free(arena);
}

static void budget_holds(void) {
    gqac_arena *arena = gqac_arena_create(64);
    for (int round = 0; round < 2; round++) {
        CU_ASSERT_PTR_NOT_NULL(gqac_arena_alloc(arena, 48));
        CU_ASSERT_PTR_NULL(gqac_arena_alloc(arena, 17));
        CU_ASSERT_PTR_NOT_NULL(gqac_arena_alloc(arena, 16));
        CU_ASSERT_PTR_NULL(gqac_arena_alloc(arena, 1));
        CU_ASSERT_EQUAL(gqac_arena_used(arena), 64);
        gqac_arena_reset(arena);
    }
    gqac_arena_free(arena);
}

/* Allocations smaller than a huge page are placed one after another in chunks of whole huge pages.
 * The memory is not accessed. */
static void data_fill_huge_pages(void) {
    enum { PIECE = 320 * 1024, N = 240 };
    gqac_arena *arena = gqac_arena_create(0);
    const unsigned char *end = NULL;
    size_t loose = 0; /* bytes before the first huge page */
    int chunks = 0;
    bool huge = false;
    for (int i = 0; i < N; i++) {
        const unsigned char *data = gqac_arena_data(arena, PIECE);
        CU_ASSERT_FATAL(data != NULL);
        chunks += data != end;
        huge = data == end ? huge : (uintptr_t)data % GQAC_HUGE_PAGE == 64;
        loose += huge ? 0 : PIECE;
        end = data + PIECE;
    }
    CU_ASSERT(chunks <= 13);
    CU_ASSERT(loose <= 2 * (size_t)GQAC_HUGE_PAGE);
    gqac_arena_free(arena);
}

static void data_are_reused(void) {
    gqac_arena *arena = gqac_arena_create(256);
    void *first = gqac_arena_data(arena, 100);
    CU_ASSERT_FATAL(first != NULL);
    CU_ASSERT_PTR_NULL(gqac_arena_data(arena, 129));
    CU_ASSERT_EQUAL(gqac_arena_refused(arena), 192);
    CU_ASSERT_EQUAL(gqac_arena_used(arena), 128);
    gqac_arena_reset(arena);
    CU_ASSERT_PTR_EQUAL(gqac_arena_data(arena, 128), first);
    gqac_arena_free(arena);
}

static void absurd_sizes_fail(void) {
    gqac_arena *arena = gqac_arena_create(0);
    CU_ASSERT_PTR_NULL(gqac_arena_alloc(arena, SIZE_MAX));
    CU_ASSERT_PTR_NULL(gqac_arena_alloc(arena, SIZE_MAX - 20));
    CU_ASSERT_PTR_NULL(gqac_arena_data(arena, SIZE_MAX));
    CU_ASSERT_PTR_NULL(gqac_arena_data(arena, SIZE_MAX - 127));
    CU_ASSERT_PTR_NULL(gqac_arena_calloc(arena, SIZE_MAX / 4, 5));
    CU_ASSERT_PTR_NULL(gqac_arena_strndup(arena, "", SIZE_MAX));
    CU_ASSERT_PTR_NOT_NULL(gqac_arena_alloc(arena, 1));
    gqac_arena_free(arena);
}

static void texts_are_copied(void) {
    gqac_arena *arena = gqac_arena_create(0);
    CU_ASSERT_STRING_EQUAL(gqac_arena_strdup(arena, "key"), "key");
    CU_ASSERT_STRING_EQUAL(gqac_arena_strndup(arena, "keys", 3), "key");
    CU_ASSERT_STRING_EQUAL(gqac_arena_strdup(arena, ""), "");
    CU_ASSERT_STRING_EQUAL(gqac_arena_printf(arena, "%d-%s", 7, "x"), "7-x");
    const int value = 5;
    const int *copy = gqac_arena_copy(arena, &value, sizeof value);
    CU_ASSERT(copy && *copy == 5);
    const int64_t *array = GQAC_ARENA_ARRAY(arena, int64_t, 9);
    for (int i = 0; array && i < 9; i++)
        CU_ASSERT_EQUAL(array[i], 0);
    gqac_arena_free(arena);
}

static void reset_reuses_memory(void) {
    gqac_arena *arena = gqac_arena_create(0);
    unsigned char *a = gqac_arena_alloc(arena, 64);
    CU_ASSERT_FATAL(a != NULL);
    memset(a, 1, 64);
    gqac_arena_reset(arena);
    unsigned char *b = gqac_arena_alloc(arena, 64);
    CU_ASSERT_PTR_EQUAL(a, b);
#ifdef GQAC_POISON
    for (int i = 0; i < 64; i++)
        CU_ASSERT_EQUAL(b[i], 0xDD);
#endif
    gqac_arena_free(arena);
}

#ifdef GQAC_TEST_ALLOC
static void short_memory_is_null(void) {
    const size_t live = gqac_alloc_live();
    gqac_alloc_fail_at(1, 0);
    CU_ASSERT_PTR_NULL(gqac_arena_create(0));
    gqac_arena *arena = gqac_arena_create(0);
    CU_ASSERT_FATAL(arena != NULL);
    char *text = gqac_arena_strdup(arena, "kept");
    gqac_alloc_fail_at(1, 1);
    CU_ASSERT_PTR_NULL(gqac_arena_alloc(arena, 100000));
    CU_ASSERT_PTR_NOT_NULL(gqac_arena_alloc(arena, 100)); /* a chunk exists */
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_PTR_NOT_NULL(gqac_arena_alloc(arena, 100000));
    CU_ASSERT_STRING_EQUAL(text, "kept");
    CU_ASSERT_PTR_NOT_NULL(gqac_arena_data(arena, 3 << 20));
    gqac_alloc_fail_at(1, 0); /* a chunk of whole huge pages fails, one for these bytes does not */
    CU_ASSERT_PTR_NOT_NULL(gqac_arena_data(arena, 3 << 20));
    gqac_alloc_fail_at(1, 1);
    CU_ASSERT_PTR_NULL(gqac_arena_data(arena, 3 << 20));
    gqac_alloc_fail_at(0, 0);
    gqac_arena_free(arena);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}
#endif

static const unit_case cases[] = {
    {"allocations do not overlap", allocations_do_not_overlap},
    {"zero size is valid", zero_size_is_valid},
    {"the budget holds", budget_holds},
    {"data fill huge pages", data_fill_huge_pages},
    {"data are reused after a reset", data_are_reused},
    {"absurd sizes fail", absurd_sizes_fail},
    {"texts are copied", texts_are_copied},
    {"reset reuses memory", reset_reuses_memory},
#ifdef GQAC_TEST_ALLOC
    {"short memory is NULL", short_memory_is_null},
#endif
};

int main(int argc, char **argv) {
    return unit_run("base/arena", cases, sizeof cases / sizeof cases[0], argc, argv);
}
