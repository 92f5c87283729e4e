/* Thread pool: persistent workers that share a number of independent items. Each item writes
 * outputs of its own, and nothing is reduced across items, so results never depend on the number of
 * threads.
 *
 * Processors: those that the calling thread may use when the pool is made. A pool with exactly as
 * many threads binds worker i to processor i; other pools leave the choice to the system, so that
 * several small pools do not end up on the same few processors. The affinity mask of the caller is
 * unchanged after every call. Waiting threads spin only if every thread of the pool has a
 * processor. */
#ifndef GQAC_BASE_POOL_H
#define GQAC_BASE_POOL_H

#include <stddef.h>

#include "base/poll.h"

typedef struct gqac_pool gqac_pool;

#define GQAC_POOL_MAX     1024
#define GQAC_POOL_SPIN_NS 50000 /* how long a waiting thread spins before it sleeps */

/* A pool of `threads` threads, the caller included; 1 starts no worker. USAGE: not 1 <= threads <=
 * GQAC_POOL_MAX; NO_MEMORY: a thread cannot be started. */
gqac_status gqac_pool_create(int threads, gqac_pool **pool, gqac_diag *diag);
void gqac_pool_free(gqac_pool *pool);
int gqac_pool_threads(const gqac_pool *pool);
/* Sets the poll of the calls that the pool works for: once such a call is stopped, items are left
 * out, see below. NULL: no poll. */
void gqac_pool_watch(gqac_pool *pool, gqac_poll *poll);
/* True if the call whose regions the pool runs was stopped. */
bool gqac_pool_stopped(const gqac_pool *pool);
/* Number of regions that were shared among threads so far. */
size_t gqac_pool_regions(const gqac_pool *pool);
/* Calls run(arg, begin, end, worker) for disjoint ranges that cover [0, items); returns when all
 * have returned. pool NULL: the caller runs them all. `grain`: the minimum of items in a call.
 * `worker` is in [0, threads) and differs between calls that run at the same time (it does not
 * identify a thread). One caller at a time, and `run` must not call the same pool. Workers have the
 * default floating-point environment.
 *
 * When a poll is set, a long range is cut into several calls of its worker. If the call is stopped
 * between them, the remaining items are not run, and what they would have written is unspecified. A
 * caller that uses such results as indices or addresses must ask gqac_pool_stopped first; other
 * results of a stopped call are discarded. */
void gqac_pool_run(gqac_pool *pool, size_t items, size_t grain,
                   void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg);

/* The same for items of unequal cost: a free thread takes the next item, in ascending order, so the
 * longest should come first. Which thread takes an item is not determined. */
void gqac_pool_queue(gqac_pool *pool, size_t items, void (*run)(void *arg, size_t item, int worker),
                     void *arg);

#endif
