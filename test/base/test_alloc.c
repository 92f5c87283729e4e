/* The allocation functions: sizes, alignment, overflow, and failing the n-th call in test
 * builds. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "unit.h"

static void zero_sizes_are_valid(void) {
    void *a = gqac_alloc(0), *b = gqac_calloc(0, 8), *c = gqac_realloc(NULL, 0);
    void *d = gqac_aligned_alloc(64, 0);
    CU_ASSERT(a && b && c && d);
    c = gqac_realloc(c, 0);
    CU_ASSERT(c != NULL);
    gqac_free(a);
    gqac_free(b);
    gqac_free(c);
    gqac_free(d);
    gqac_free(NULL);
}

static void calloc_zeroes_and_checks(void) {
    unsigned char *p = gqac_calloc(7, 11);
    CU_ASSERT_FATAL(p != NULL);
    for (int i = 0; i < 77; i++)
        CU_ASSERT_EQUAL(p[i], 0);
    gqac_free(p);
    CU_ASSERT_PTR_NULL(gqac_calloc(SIZE_MAX / 2, 3));
    CU_ASSERT_PTR_NULL(gqac_calloc(3, SIZE_MAX / 2));
}

static void realloc_keeps_content(void) {
    char *p = gqac_alloc(4);
    CU_ASSERT_FATAL(p != NULL);
    memcpy(p, "abc", 4);
    p = gqac_realloc(p, 100000);
    CU_ASSERT_FATAL(p != NULL);
    CU_ASSERT_STRING_EQUAL(p, "abc");
    gqac_free(p);
}

static void alignment_is_kept(void) {
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        void *p = gqac_aligned_alloc(alignment, 3);
        CU_ASSERT_FATAL(p != NULL);
        CU_ASSERT_EQUAL((uintptr_t)p % alignment, 0);
        gqac_free(p);
    }
}

#ifdef GQAC_TEST_ALLOC
/* One call of each kind; returns how many of them succeeded. */
static int one_of_each(void) {
    void *p[4] = {gqac_alloc(8), gqac_calloc(2, 8), gqac_realloc(NULL, 8),
                  gqac_aligned_alloc(64, 8)};
    int given = 0;
    for (int i = 0; i < 4; i++) {
        given += p[i] != NULL;
        gqac_free(p[i]);
    }
    return given;
}

static void nth_call_fails(void) {
    const size_t live = gqac_alloc_live();
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL(one_of_each(), 4);
    CU_ASSERT_EQUAL(gqac_alloc_calls(), 4);
    for (size_t n = 1; n <= 4; n++) {
        gqac_alloc_fail_at(n, 0);
        CU_ASSERT_EQUAL(one_of_each(), 3);
        gqac_alloc_fail_at(n, 1);
        CU_ASSERT_EQUAL(one_of_each(), (int)n - 1);
    }
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}

static void failed_realloc_keeps_the_old(void) {
    char *p = gqac_alloc(4);
    CU_ASSERT_FATAL(p != NULL);
    memcpy(p, "abc", 4);
    gqac_alloc_fail_at(1, 0);
    CU_ASSERT_PTR_NULL(gqac_realloc(p, 1000));
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_STRING_EQUAL(p, "abc");
    gqac_free(p);
}
#endif

static const unit_case cases[] = {
    {"zero sizes are valid", zero_sizes_are_valid},
    {"calloc zeroes and checks", calloc_zeroes_and_checks},
    {"realloc keeps content", realloc_keeps_content},
    {"alignment is kept", alignment_is_kept},
#ifdef GQAC_TEST_ALLOC
    {"the n-th call fails", nth_call_fails},
    {"a failed realloc keeps the old memory", failed_realloc_keeps_the_old},
#endif
};

int main(int argc, char **argv) {
    return unit_run("base/alloc", cases, sizeof cases / sizeof cases[0], argc, argv);
}
