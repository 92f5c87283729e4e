/* Thread pool: persistent workers that share independent items of work. Each item writes its own
 * outputs, and nothing is reduced across items, so results never depend on the number of threads.
 *
 * Processors are those that the calling thread may use when the pool is created. A pool with
 * exactly as many threads binds worker i to processor i; other pools leave the choice to the
 * system, so that several small pools do not end up on the same few processors. The affinity mask
 * of the caller is the same after every call. Waiting threads spin only if every thread of the pool
 * has a processor. */
#ifndef GQAC_BASE_POOL_H
#define GQAC_BASE_POOL_H

#include <stddef.h>

#include "base/poll.h"

typedef struct gqac_pool gqac_pool;

#define GQAC_POOL_MAX     1024
#define GQAC_POOL_SPIN_NS 50000 /* how long a waiting thread spins before it sleeps */

/* Creates a pool of `threads` threads, the caller included. USAGE: not 1 <= threads <=
 * GQAC_POOL_MAX; NO_MEMORY: a thread cannot be started. */
gqac_status gqac_pool_create(int threads, gqac_pool **pool, gqac_diag *diag);
void gqac_pool_free(gqac_pool *pool);
int gqac_pool_threads(const gqac_pool *pool);
/* Sets the poll of the calls that the pool works for; NULL: none. Once such a call is stopped,
 * items are skipped: see gqac_pool_run. */
void gqac_pool_watch(gqac_pool *pool, gqac_poll *poll);
/* True if the call whose regions the pool runs was stopped. */
bool gqac_pool_stopped(const gqac_pool *pool);
/* Number of regions that were shared among threads so far. */
size_t gqac_pool_regions(const gqac_pool *pool);
/* Calls run(arg, begin, end, worker) for disjoint ranges that cover [0, items), and returns when
 * all of these calls have returned. pool NULL: the caller's thread makes them all. `grain` is the
 * minimum number of items in a call. `worker` is in [0, threads) and differs between calls that run
 * at the same time (it does not identify a thread). Only one caller at a time may use the pool, and
 * `run` must not call it. Workers have the default floating-point environment.
 *
 * If a poll is set, a worker runs a long range in several calls. If it is stopped between them, the
 * remaining items do not run, and their outputs are unspecified. A caller that uses such outputs as
 * indices or addresses must call gqac_pool_stopped first; other results of a stopped call are
 * discarded. */
void gqac_pool_run(gqac_pool *pool, size_t items, size_t grain,
                   void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg);

/* The same for items of unequal cost: whichever thread is free takes the next item, in ascending
 * order, so the costliest items should come first. */
void gqac_pool_queue(gqac_pool *pool, size_t items, void (*run)(void *arg, size_t item, int worker),
                     void *arg);

#endif
