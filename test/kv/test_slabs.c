/* Pieces of slabs: no two overlap, all are aligned, and returned pieces are used again. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "kv/slabs.h"
#include "unit.h"

enum { MOST = 96, ROUNDS = 4000 };

typedef struct holder {
    kv_slabs *slabs;
    unsigned seed;
    unsigned char *pieces[MOST];
    bool wrong;
} holder;

static unsigned any(holder *h, unsigned n) {
    h->seed = h->seed * 1664525u + 1013904223u;
    return (h->seed >> 8) % n;
}

/* The first and the last bytes of a piece identify its holder. */
static void mark(const holder *h, unsigned i) {
    unsigned char *piece = h->pieces[i];
    memset(piece, (int)(h->seed & 0x7f), 64);
    memcpy(piece, &h, sizeof(void *));
    memcpy(piece + 8, &i, sizeof i);
    memcpy(piece + h->slabs->bytes - 16, piece, 16);
}

static bool is_marked(const holder *h, unsigned i) {
    const unsigned char *piece = h->pieces[i];
    return !memcmp(piece, &h, sizeof(void *)) && !memcmp(piece + 8, &i, sizeof i) &&
           !memcmp(piece + h->slabs->bytes - 16, piece, 16);
}

static void change(holder *h, unsigned i) {
    if (h->pieces[i]) {
        h->wrong |= !is_marked(h, i);
        kv_slabs_give(h->slabs, h->pieces[i]);
        h->pieces[i] = NULL;
        return;
    }
    h->pieces[i] = kv_slabs_take(h->slabs);
    h->wrong |= !h->pieces[i] || (uintptr_t)h->pieces[i] % 64 != 0;
    mark(h, i);
}

static void *work(void *arg) {
    holder *h = arg;
    for (int round = 0; round < ROUNDS; round++)
        change(h, any(h, MOST));
    for (unsigned i = 0; i < MOST; i++)
        if (h->pieces[i])
            change(h, i);
    return NULL;
}

static void pieces_are_apart(void) {
    static const size_t sizes[] = {64, 192, 70016};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        kv_slabs slabs;
        kv_slabs_open(&slabs, sizes[i]);
        holder h[4];
        pthread_t threads[4];
        for (unsigned t = 0; t < 4; t++) {
            h[t] = (holder){.slabs = &slabs, .seed = t};
            CU_ASSERT_EQUAL(pthread_create(&threads[t], NULL, work, &h[t]), 0);
        }
        for (unsigned t = 0; t < 4; t++) {
            pthread_join(threads[t], NULL);
            CU_ASSERT(!h[t].wrong);
        }
        CU_ASSERT_EQUAL(kv_slabs_taken(&slabs), 0);
        CU_ASSERT_PTR_NULL(slabs.first); /* unused slabs are freed */
        kv_slabs_close(&slabs);
    }
}

/* Counts how many of 64 pieces directly follow the one taken before. */
static int neighbours(kv_slabs *slabs, unsigned char *pieces[64]) {
    int n = 0;
    for (int i = 0; i < 64; i++)
        pieces[i] = kv_slabs_take(slabs);
    for (int i = 1; i < 64; i++)
        n += pieces[i] - pieces[i - 1] == (ptrdiff_t)slabs->bytes;
    return n;
}

#ifdef GQAC_SHUFFLED_BLOCKS
static void pieces_are_scattered(void) {
    kv_slabs slabs;
    unsigned char *pieces[64];
    kv_slabs_open(&slabs, 128);
    CU_ASSERT(neighbours(&slabs, pieces) < 16);
    kv_slabs_close(&slabs);
}
#else
/* A piece that is larger than a slab has a slab of its own; each new slab has as many pieces as are
 * in use. */
static void slabs_grow_with_use(void) {
    kv_slabs slabs;
    kv_slabs_open(&slabs, (size_t)20 << 20);
    void *a = kv_slabs_take(&slabs), *b = kv_slabs_take(&slabs);
    CU_ASSERT(a && b && a != b);
    kv_slabs_give(&slabs, a);
    CU_ASSERT_EQUAL(kv_slabs_taken(&slabs), 1);
    CU_ASSERT_PTR_NOT_NULL(kv_slabs_take(&slabs));
    kv_slabs_close(&slabs); /* with pieces in use */
    kv_slabs_open(&slabs, 128);
    unsigned char *pieces[64];
    CU_ASSERT_EQUAL(neighbours(&slabs, pieces), 63 - 6); /* of 7 slabs */
    CU_ASSERT_EQUAL(pieces[3] - pieces[2], 128);         /* 1 piece, 1, 2, 4, ... */
    CU_ASSERT_EQUAL(pieces[63] - pieces[32], 31 * 128);
    kv_slabs_give(&slabs, pieces[40]);
    kv_slabs_give(&slabs, pieces[41]);
    CU_ASSERT_PTR_EQUAL(kv_slabs_take(&slabs), pieces[41]);
    CU_ASSERT_PTR_EQUAL(kv_slabs_take(&slabs), pieces[40]);
    kv_slabs_close(&slabs);
}

/* A large slab is extended to the end of a huge page if it needs half of it or more; this counts
 * against the budget. */
static void slabs_end_with_huge_pages(void) {
    enum { PIECE = (512 << 10) + 64 };
    gqac_budget budget = {.most = 0};
    kv_slabs slabs;
    kv_slabs_open(&slabs, PIECE);
    slabs.budget = &budget;
    for (int i = 0; i < 8; i++)
        CU_ASSERT_PTR_NOT_NULL(kv_slabs_take(&slabs)); /* slabs of 1, 1, 2 and 4 pieces */
    CU_ASSERT_EQUAL(budget.used, 8 * PIECE + 4 * 64);
    const size_t small = budget.used;
    CU_ASSERT_PTR_NOT_NULL(kv_slabs_take(&slabs)); /* 8 pieces: slightly more than two pages */
    CU_ASSERT_EQUAL(budget.used - small, 8 * PIECE + 64);
    for (int i = 0; i < 8; i++)
        CU_ASSERT_PTR_NOT_NULL(kv_slabs_take(&slabs)); /* 15 pieces: most of a fourth page */
    CU_ASSERT_EQUAL(budget.used - small, 8 * PIECE + 64 + 4 * (size_t)GQAC_HUGE_PAGE);
    kv_slabs_close(&slabs);
    CU_ASSERT_EQUAL(budget.used, 0);
}

static int slabs_of(const kv_slabs *slabs) {
    int n = 0;
    for (kv_slab *slab = slabs->first; slab; slab = *(kv_slab **)slab)
        n++;
    return n;
}

/* Dense pieces are put into slabs that are nearly full, so that the other slabs become empty. */
static void dense_pieces_leave_slabs_empty(void) {
    kv_slabs slabs;
    unsigned char *pieces[64];
    kv_slabs_open(&slabs, 128);
    (void)neighbours(&slabs, pieces); /* the last slab has 32 pieces, and the one before it 16 */
    for (int i = 32; i < 63; i++)
        kv_slabs_give(&slabs, pieces[i]);
    kv_slabs_give(&slabs, pieces[20]);
    kv_slabs_give(&slabs, pieces[21]);
    CU_ASSERT_PTR_EQUAL(kv_slabs_take_dense(&slabs), pieces[21]);
    CU_ASSERT_PTR_EQUAL(kv_slabs_take_dense(&slabs), pieces[20]);
    CU_ASSERT_EQUAL(slabs_of(&slabs), 7);
    kv_slabs_give(&slabs, pieces[63]);
    CU_ASSERT_EQUAL(slabs_of(&slabs), 6);
    CU_ASSERT_PTR_NOT_NULL(kv_slabs_take_dense(&slabs));
    CU_ASSERT_EQUAL(slabs_of(&slabs), 7);
    kv_slabs_close(&slabs);
}

#ifdef GQAC_TEST_ALLOC
static void short_memory(void) {
    const size_t live = gqac_alloc_live();
    kv_slabs slabs;
    kv_slabs_open(&slabs, 64);
    void *first = kv_slabs_take(&slabs);
    gqac_alloc_fail_at(1, 1);
    CU_ASSERT_PTR_NULL(kv_slabs_take(&slabs));
    CU_ASSERT_EQUAL(kv_slabs_taken(&slabs), 1);
    gqac_alloc_fail_at(0, 0);
    kv_slabs_give(&slabs, first);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    kv_slabs_close(&slabs);
}
#endif
#endif

static const unit_case cases[] = {
    {"pieces are apart", pieces_are_apart},
#ifdef GQAC_SHUFFLED_BLOCKS
    {"pieces are scattered", pieces_are_scattered},
#else
    {"slabs grow with use", slabs_grow_with_use},
    {"slabs end with whole huge pages", slabs_end_with_huge_pages},
    {"dense pieces leave slabs empty", dense_pieces_leave_slabs_empty},
#ifdef GQAC_TEST_ALLOC
    {"short memory", short_memory},
#endif
#endif
};

int main(int argc, char **argv) {
    return unit_run("kv/slabs", cases, sizeof cases / sizeof cases[0], argc, argv);
}
