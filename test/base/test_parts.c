/* Several arrays in one allocation: they do not overlap, are aligned, and overflow is detected. */
#include "base/parts.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

typedef struct arrays {
    char *a;
    int64_t *b, *c;
    int32_t *d;
} arrays;

static void take(arrays *x, gqac_parts *p) {
    x->a = gqac_parts_take(p, 3, sizeof *x->a);
    x->b = gqac_parts_take(p, 9, sizeof *x->b);
    x->c = gqac_parts_take(p, 0, sizeof *x->c);
    x->d = gqac_parts_take(p, 1, sizeof *x->d);
}

static void test_arrays(void) {
    gqac_parts p = {.base = NULL};
    arrays x;
    take(&x, &p);
    CU_ASSERT(!x.a && !x.b && !x.c && !x.d && !p.overflow);
    CU_ASSERT_EQUAL_FATAL(p.bytes, 64 + 128 + 64);
    unsigned char *base = aligned_alloc(64, p.bytes);
    p = (gqac_parts){.base = base};
    take(&x, &p);
    CU_ASSERT((unsigned char *)x.a == base && (unsigned char *)x.b == base + 64);
    CU_ASSERT((unsigned char *)x.d == base + 192);
    memset(base, 0, p.bytes); /* the sanitizer checks the bounds */
    free(base);
}

static void test_overflow(void) {
    static const struct {
        int64_t count;
        size_t size;
    } wrong[] = {{-1, 8}, {INT64_MAX, 8}, {1, SIZE_MAX}, {1, SIZE_MAX - 63}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gqac_parts p = {.base = NULL};
        (void)gqac_parts_take(&p, 1, 64);
        (void)gqac_parts_take(&p, wrong[i].count, wrong[i].size);
        (void)gqac_parts_take(&p, 1, 64);
        CU_ASSERT(p.overflow);
    }
}

static const unit_case cases[] = {
    {"arrays in one piece", test_arrays},
    {"sizes that overflow", test_overflow},
};

int main(int argc, char **argv) {
    return unit_run("parts", cases, sizeof cases / sizeof *cases, argc, argv);
}
