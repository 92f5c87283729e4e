/* The threads of a pool, with one interface for workers of the library and for threads of the
 * caller. */
#ifndef GQAC_BASE_THREADS_H
#define GQAC_BASE_THREADS_H

#include <gqac/threads.h>
#include <sched.h>

#include "base/pool.h"

/* Calls task(arg, i) for each i in [0, n), n <= gqac_threads_count; returns when all have returned.
 * Calls from several threads wait for each other; a task must not call this function. */
void gqac_threads_run(gqac_threads *threads, int n, gqac_task *task, void *arg);

/* A pool whose regions run on these threads, which must outlive it. NO_MEMORY. */
gqac_status gqac_pool_create_on(gqac_threads *threads, gqac_pool **pool, gqac_diag *diag);

/* Number of cores of the processors, by the lists of siblings below `root` ("/sys"); a processor
 * without a list is a core. */
int gqac_cores_of(const cpu_set_t *processors, const char *root);
/* Processors for a cgroup's quota "MAX PERIOD" (cpu.max), rounded up; 0: no quota. */
int gqac_cores_of_quota(const char *quota);

#endif
