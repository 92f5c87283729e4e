/* The pool of one context: cuts the items of a region into one contiguous range for each worker,
 * and skips items once the call was stopped. */
#include "base/pool.h"

#include <stdatomic.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/threads.h"

enum {
    PIECE_GRAINS = 16,  /* ranges of fewer grains are not cut into pieces */
    PIECE_NS = 2000000, /* pieces grow until one takes this long */
};

struct gqac_pool {
    gqac_threads *threads;
    bool owned;
    gqac_poll *poll;
    size_t regions;
};

typedef struct region {
    void (*run)(void *arg, size_t begin, size_t end, int worker);
    void *arg;
    size_t items, grain, ranges;
    gqac_poll *poll;
} region;

gqac_status gqac_pool_create_on(gqac_threads *threads, gqac_pool **pool, gqac_diag *diag) {
    gqac_pool *p = gqac_calloc(1, sizeof *p);
    if (!p)
        return gqac_diag_oom(diag, "a thread pool");
    p->threads = threads;
    *pool = p;
    return GQAC_OK;
}

gqac_status gqac_pool_create(int threads, gqac_pool **pool, gqac_diag *diag) {
    gqac_threads *own = NULL;
    if (threads < 1)
        GQAC_FAIL(diag, GQAC_USAGE, "cannot use %d threads: the number must be 1 to %d", threads,
                  GQAC_POOL_MAX);
    GQAC_TRY(gqac_threads_create(threads, &own, diag));
    gqac_status status = gqac_pool_create_on(own, pool, diag);
    if (status == GQAC_OK)
        (*pool)->owned = true;
    else
        gqac_threads_free(own);
    return status;
}

void gqac_pool_free(gqac_pool *pool) {
    if (pool && pool->owned)
        gqac_threads_free(pool->threads);
    gqac_free(pool);
}

int gqac_pool_threads(const gqac_pool *pool) {
    return pool ? gqac_threads_count(pool->threads) : 1;
}

void gqac_pool_watch(gqac_pool *pool, gqac_poll *poll) {
    pool->poll = poll;
}

bool gqac_pool_stopped(const gqac_pool *pool) {
    return pool && gqac_poll_stopped(pool->poll);
}

size_t gqac_pool_regions(const gqac_pool *pool) {
    return pool ? pool->regions : 0;
}

/* ---- ranges -------------------------------------------------------------- */

/* Runs items [begin, end) in pieces, so that the call can be stopped between them. */
static void run_pieces(const region *r, size_t begin, size_t end, int worker) {
    size_t piece = r->grain < end / PIECE_GRAINS ? r->grain * PIECE_GRAINS : end;
    if (end - begin <= piece || !gqac_poll_asks(r->poll)) {
        r->run(r->arg, begin, end, worker);
        return;
    }
    while (begin < end && !gqac_poll_ask(r->poll)) {
        const int64_t start = gqac_clock_ns();
        const size_t n = end - begin < piece ? end - begin : piece;
        r->run(r->arg, begin, begin + n, worker);
        begin += n;
        if (gqac_clock_ns() - start < PIECE_NS && piece < end)
            piece *= 2;
    }
}

static void run_range(void *arg, int index) {
    const region *r = arg;
    const size_t i = (size_t)index, share = r->items / r->ranges, rest = r->items % r->ranges;
    const size_t begin = i * share + (i < rest ? i : rest);
    run_pieces(r, begin, begin + share + (i < rest), index);
}

void gqac_pool_run(gqac_pool *pool, size_t items, size_t grain,
                   void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg) {
    region r = {.run = run, .arg = arg, .items = items, .grain = grain ? grain : 1};
    if (items == 0 || gqac_pool_stopped(pool))
        return;
    const size_t threads = (size_t)gqac_pool_threads(pool);
    r.ranges = items / r.grain < threads ? items / r.grain : threads;
    r.poll = pool ? pool->poll : NULL;
    if (!pool || r.ranges < 2) {
        run_pieces(&r, 0, items, 0);
        return;
    }
    pool->regions++;
    gqac_threads_run(pool->threads, (int)r.ranges, run_range, &r);
}

/* ---- queues -------------------------------------------------------------- */

typedef struct queue {
    void (*run)(void *arg, size_t item, int worker);
    void *arg;
    size_t items;
    gqac_poll *poll;
    atomic_size_t next;
} queue;

static void take_items(void *arg, size_t begin, size_t end, int worker) {
    queue *q = arg;
    (void)begin;
    (void)end;
    for (size_t item; !gqac_poll_ask(q->poll);) {
        if ((item = atomic_fetch_add(&q->next, 1)) >= q->items)
            return;
        q->run(q->arg, item, worker);
    }
}

void gqac_pool_queue(gqac_pool *pool, size_t items, void (*run)(void *arg, size_t item, int worker),
                     void *arg) {
    queue q = {.run = run, .arg = arg, .items = items, .poll = pool ? pool->poll : NULL};
    const size_t threads = (size_t)gqac_pool_threads(pool);
    if (items)
        gqac_pool_run(pool, threads < items ? threads : items, 1, take_items, &q);
}
