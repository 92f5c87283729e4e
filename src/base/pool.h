/* Thread pool: persistent workers that split a count of independent items among them. Items own
 * their outputs; nothing is reduced across items, so results never depend on the thread count.
 *
 * Processors: those the calling thread may use when the pool is made. A pool of exactly as many
 * threads binds worker i to the i-th of them; other pools leave the choice to the system, so that
 * several small pools do not meet on the same few. The mask of the caller is as before after every
 * call. Threads that wait spin only if every thread of the pool has a processor. */
#ifndef GQAC_BASE_POOL_H
#define GQAC_BASE_POOL_H

#include <stddef.h>

#include "base/poll.h"

typedef struct gqac_pool gqac_pool;

#define GQAC_POOL_MAX     1024
#define GQAC_POOL_SPIN_NS 50000 /* how long a waiting thread looks before it sleeps */

/* threads >= 1, the caller included; 1 starts no worker. Fails with NO_MEMORY when a thread cannot
 * be started, with USAGE unless 1 <= threads <= GQAC_POOL_MAX. */
gqac_status gqac_pool_create(int threads, gqac_pool **pool, gqac_diag *diag);
void gqac_pool_free(gqac_pool *pool);
int gqac_pool_threads(const gqac_pool *pool);
/* Whose calls the pool works for: once that was stopped, items are left out, see below. NULL:
 * nobody's.
 */
void gqac_pool_watch(gqac_pool *pool, gqac_poll *poll);
/* Was the call stopped whose regions the pool runs? */
bool gqac_pool_stopped(const gqac_pool *pool);
/* How many calls so far were shared among threads. */
size_t gqac_pool_regions(const gqac_pool *pool);
/* Calls run(arg, begin, end, worker) over disjoint ranges that cover [0, items); returns when all
 * are done. pool may be NULL: then the caller does it all. `grain`: least items a call. `worker` is
 * in [0, threads) and differs between calls that run at once (it does not name a thread). One
 * caller at a time, and `run` must not call back into the same pool. Workers have the default
 * floating-point environment.
 *
 * A range that takes long is cut into several calls of its worker when somebody watches. When the
 * call is stopped between them, the items that are left are not run: what they would have written
 * is unspecified. A caller that goes on to use such results as indices or addresses must ask
 * gqac_pool_stopped first; results of a stopped call are thrown away. */
void gqac_pool_run(gqac_pool *pool, size_t items, size_t grain,
                   void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg);

/* The same for items of unequal cost: each is taken when a thread is free, in ascending order, so
 * the longest should come first. Which thread takes an item is not determined. */
void gqac_pool_queue(gqac_pool *pool, size_t items, void (*run)(void *arg, size_t item, int worker),
                     void *arg);

#endif
