/* What the pool stands on: workers of ours or of the caller, behind one function. */
#ifndef GQAC_BASE_THREADS_H
#define GQAC_BASE_THREADS_H

#include <gqac/threads.h>
#include <sched.h>

#include "base/pool.h"

/* Calls task(arg, i) for each i in [0, n), n <= gqac_threads_count; returns when all are done.
 * Calls from several threads wait for each other; a task must not call back. */
void gqac_threads_run(gqac_threads *threads, int n, gqac_task *task, void *arg);

/* A pool whose regions they run; they must outlive it. */
gqac_status gqac_pool_create_on(gqac_threads *threads, gqac_pool **pool, gqac_diag *diag);

/* Cores among those processors, by the lists of siblings below `root` ("/sys"); a processor without
 * one is a core. */
int gqac_cores_of(const cpu_set_t *processors, const char *root);
/* Processors that a quota "MAX PERIOD" of a cgroup (cpu.max) comes to, rounded up; 0: no bound. */
int gqac_cores_of_quota(const char *quota);

#endif
