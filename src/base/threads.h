/* The threads of a pool: one interface for workers of the library and threads of the caller. */
#ifndef GQAC_BASE_THREADS_H
#define GQAC_BASE_THREADS_H

#include <gqac/threads.h>
#include <sched.h>
#include <stdbool.h>

#include "base/pool.h"

/* Calls task(arg, i) for each i in [0, n), n <= gqac_threads_count, and returns when all of these
 * calls have returned. Callers on several threads take turns. A task must not call this
 * function. */
void gqac_threads_run(gqac_threads *threads, int n, gqac_task *task, void *arg);

/* Creates a pool whose regions run on these threads, which must outlive it. NO_MEMORY. */
gqac_status gqac_pool_create_on(gqac_threads *threads, gqac_pool **pool, gqac_diag *diag);

/* A set of processors, of as many bytes as the kernel needs: machines may have more than the
 * CPU_SETSIZE of a cpu_set_t. */
typedef struct gqac_processors {
    cpu_set_t *set; /* for the macros CPU_*_S; NULL: the kernel does not say which they are */
    size_t bytes;
} gqac_processors;

/* Finds the processors that the calling thread may use; false: out of memory. */
bool gqac_processors_find(gqac_processors *processors);
void gqac_processors_free(gqac_processors *processors);

/* Number of cores that the processors belong to, by the lists of siblings under `root` ("/sys"); a
 * processor without a list counts as a core. */
int gqac_cores_of(const gqac_processors *processors, const char *root);
/* Number of processors that a cgroup's quota "MAX PERIOD" (cpu.max) allows, rounded up; 0: there is
 * no quota. */
int gqac_cores_of_quota(const char *quota);

#endif
