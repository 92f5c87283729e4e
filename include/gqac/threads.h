/* The threads of contexts. Results do not depend on their number. */
#ifndef GQAC_THREADS_H
#define GQAC_THREADS_H

#include <gqac/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Worker threads that any number of contexts may share (gqac_context_create_on), also contexts that
 * run at the same time on different threads of the caller. The work of a step is a list of regions,
 * each split over all workers. A region belongs to one context; other contexts wait for its end, in
 * the order in which they asked. Work between regions needs no workers and does not wait. So
 * contexts that share a gqac_threads never compute on more of its threads than it has, besides the
 * threads of the callers.
 * Contexts that should compute side by side without waiting need one gqac_threads each. */
typedef struct gqac_threads gqac_threads;

/* Processor cores that this process may use: those of its affinity mask, at most the quota of its
 * cgroup; two processors of one core count once. At least 1. */
GQAC_API int gqac_threads_default(void);
/* threads: the number of threads that compute, including the thread that calls gqac_step; 0:
 * gqac_threads_default. The caller frees *created with gqac_threads_free. USAGE: threads is
 * negative or more than 1024; NO_MEMORY: a thread cannot be started. */
GQAC_API gqac_status gqac_threads_create(int threads, gqac_threads **created, gqac_diag *diag);

/* The caller's own threads. A function of this type calls task(task_arg, i) once for each i in [0,
 * n), n >= 2, in any order and on any threads, and returns when all calls have returned. The thread
 * that computes a step calls it; contexts that step at the same time call it at the same time.
 * Inside a region, a monitor is asked only on the thread that called gqac_step. */
typedef void gqac_task(void *task_arg, int i);
typedef void gqac_parallel_for(void *arg, int n, gqac_task *task, void *task_arg);
/* Threads of the caller instead of workers. threads: the maximum of tasks in a region (the largest
 * n); 0: gqac_threads_default. `arg` is passed to `run` and must live as long as *created. USAGE:
 * as above, or run is NULL. */
GQAC_API gqac_status gqac_threads_wrap(int threads, gqac_parallel_for *run, void *arg,
                                       gqac_threads **created, gqac_diag *diag);
GQAC_API int gqac_threads_count(const gqac_threads *threads);
/* Contexts that use the threads must be freed before. NULL is allowed. */
GQAC_API void gqac_threads_free(gqac_threads *threads);

#ifdef __cplusplus
}
#endif
#endif
