/* See slabs.h. A new slab has as many pieces as are in use already, but at most SLAB bytes, so that
 * a short sequence takes little more memory than its blocks. A slab that ends in the second half of
 * a huge page is made longer, because blocks on small pages are read more slowly. */
#include "kv/slabs.h"

#include <stdint.h>

#include "base/alloc.h"
#include "base/check.h"

enum { ALIGNMENT = 64, SLAB = 8 << 20 };

/* The header of a slab, before its pieces. Pieces that were returned form a list. */
struct kv_slab {
    kv_slab *next;
    size_t pieces, taken, fresh; /* pieces from `fresh` on have never been used */
    void *given;
};

_Static_assert(sizeof(kv_slab) <= ALIGNMENT, "pieces begin after the header");

static unsigned char *piece_at(const kv_slabs *s, kv_slab *slab, size_t i) {
    return (unsigned char *)slab + ALIGNMENT + i * s->bytes;
}

static bool has(const kv_slabs *s, kv_slab *slab, const void *piece) {
    const uintptr_t at = (uintptr_t)piece, begin = (uintptr_t)piece_at(s, slab, 0);
    return at >= begin && at - begin < slab->pieces * s->bytes;
}

void kv_slabs_open(kv_slabs *s, size_t bytes) {
    *s = (kv_slabs){.bytes = bytes};
    pthread_mutex_init(&s->lock, NULL);
}

static size_t slab_bytes(const kv_slabs *s, size_t pieces) {
    size_t bytes;
    if (!gqac_mul_size(pieces, s->bytes, &bytes) || !gqac_add_size(bytes, ALIGNMENT, &bytes))
        return SIZE_MAX;
    const size_t last = bytes % GQAC_HUGE_PAGE;
    const bool longer = bytes >= 2 * (size_t)GQAC_HUGE_PAGE && last >= GQAC_HUGE_PAGE / 2;
    return longer && !gqac_add_size(bytes, GQAC_HUGE_PAGE - last, &bytes) ? SIZE_MAX : bytes;
}

static void free_slab(kv_slabs *s, kv_slab *slab) {
    gqac_budget_give(s->budget, slab_bytes(s, slab->pieces));
    gqac_free(slab);
}

void kv_slabs_close(kv_slabs *s) {
    for (kv_slab *slab = s->first, *next; slab; slab = next) {
        next = slab->next;
        free_slab(s, slab);
    }
    pthread_mutex_destroy(&s->lock);
    s->first = NULL;
}

size_t kv_slabs_least(const kv_slabs *s) {
    return slab_bytes(s, 1);
}

static bool take_budget(kv_slabs *s, size_t pieces) {
    const size_t bytes = slab_bytes(s, pieces);
    size_t spare = 0, both;
    if (pieces > 1 && s->budget)
        spare = s->spare + atomic_load(&s->budget->spare);
    if (!gqac_add_size(bytes, spare, &both) || !gqac_budget_take(s->budget, both))
        return false;
    gqac_budget_give(s->budget, spare);
    return true;
}

/* Adds a slab; a smaller one if the budget is too small for the usual size. */
static kv_slab *grow(kv_slabs *s) {
    size_t pieces = s->bytes ? (SLAB - ALIGNMENT) / s->bytes : 1;
    pieces = pieces < s->taken ? pieces : s->taken;
    pieces = pieces ? pieces : 1;
#ifdef GQAC_SHUFFLED_BLOCKS
    pieces = pieces < 8 ? 8 : pieces;
#endif
    while (!take_budget(s, pieces))
        if ((pieces /= 2) == 0)
            return NULL;
    kv_slab *slab = gqac_data_alloc(slab_bytes(s, pieces));
    if (!slab) {
        gqac_budget_give(s->budget, slab_bytes(s, pieces));
        return NULL;
    }
    *slab = (kv_slab){.next = s->first, .pieces = pieces};
    return s->first = slab;
}

static bool is_full(const kv_slab *slab) {
    return slab->taken == slab->pieces;
}

/* The first slab with a free piece. */
static kv_slab *first_of(kv_slab *slab) {
    while (slab && is_full(slab))
        slab = slab->next;
    return slab;
}

/* The slab with the fewest free pieces, at least one. */
static kv_slab *densest_of(kv_slab *slab) {
    kv_slab *best = first_of(slab);
    for (slab = best; slab; slab = slab->next)
        if (!is_full(slab) && slab->pieces - slab->taken < best->pieces - best->taken)
            best = slab;
    return best;
}

#ifdef GQAC_SHUFFLED_BLOCKS /* test build: pieces come from anywhere, so blocks lie scattered */
/* Makes sure that there are some slabs with free pieces, chooses one, and moves a piece somewhere
 * in it to the front of its list. */
static kv_slab *shuffle(kv_slabs *s) {
    enum { SLABS = 3, STEP = 7 };
    const size_t random = (s->taken + 1) * 2654435761u >> 5;
    size_t n = 0;
    for (kv_slab *slab = first_of(s->first); slab; slab = first_of(slab->next))
        n++;
    for (; n < SLABS && grow(s); n++)
        ;
    kv_slab *slab = first_of(s->first);
    for (size_t i = 0; n && i < random % n; i++)
        slab = first_of(slab->next);
    while (slab && slab->fresh < slab->pieces) {
        void *piece = piece_at(s, slab, slab->fresh++);
        *(void **)piece = slab->given;
        slab->given = piece;
    }
    for (size_t i = 0; slab && i < random % STEP; i++) { /* the first piece becomes the last */
        void **last = &slab->given, *first = slab->given;
        while (*last)
            last = *last;
        if (last == first)
            break;
        slab->given = *(void **)first;
        *(void **)first = NULL;
        *last = first;
    }
    return slab;
}
#endif

static void *take(kv_slabs *s, kv_slab *choose(kv_slab *)) {
    pthread_mutex_lock(&s->lock);
#ifdef GQAC_SHUFFLED_BLOCKS
    kv_slab *slab = choose ? shuffle(s) : NULL;
#else
    kv_slab *slab = choose(s->first);
#endif
    if (!slab)
        slab = grow(s);
    unsigned char *piece = slab ? slab->given : NULL;
    if (piece)
        slab->given = *(void **)(void *)piece;
    else if (slab)
        piece = piece_at(s, slab, slab->fresh++);
    s->taken += piece != NULL;
    if (slab)
        slab->taken++;
    pthread_mutex_unlock(&s->lock);
    return piece;
}

void *kv_slabs_take(kv_slabs *s) {
    return take(s, first_of);
}

void *kv_slabs_take_dense(kv_slabs *s) {
    return take(s, densest_of);
}

void kv_slabs_give(kv_slabs *s, void *piece) {
    pthread_mutex_lock(&s->lock);
    kv_slab **at = &s->first, *slab;
    while (!has(s, slab = *at, piece))
        at = &slab->next;
    *(void **)piece = slab->given;
    slab->given = piece;
    s->taken--;
    if (--slab->taken == 0) {
        *at = slab->next;
        free_slab(s, slab);
    }
    pthread_mutex_unlock(&s->lock);
}

size_t kv_slabs_taken(kv_slabs *s) {
    pthread_mutex_lock(&s->lock);
    const size_t taken = s->taken;
    pthread_mutex_unlock(&s->lock);
    return taken;
}
