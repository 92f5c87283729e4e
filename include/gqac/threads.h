/* Threads that contexts compute with. Results do not depend on them. */
#ifndef GQAC_THREADS_H
#define GQAC_THREADS_H

#include <gqac/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Workers that any number of contexts may share (gqac_context_create_on), also contexts that
 * different threads use at once. The work of a step is a list of regions, each split over all
 * workers. A region belongs to one context: another context waits for its end, in the order of
 * asking, and what lies between regions runs at once. So contexts on one gqac_threads never use
 * more threads than it has, besides their own; contexts that are to compute side by side without
 * waiting need one each. */
typedef struct gqac_threads gqac_threads;

/* Processor cores that this process may use: the processors of its affinity mask, those of one core
 * counted once, and no more than the quota of its cgroup. At least 1. */
GQAC_API int gqac_threads_default(void);
/* threads: how many compute, the calling thread of a step included; 0: gqac_threads_default.
 * USAGE: fewer, or more than 1024; NO_MEMORY: a thread cannot be started. */
GQAC_API gqac_status gqac_threads_create(int threads, gqac_threads **created, gqac_diag *diag);

/* The caller's own threads. A function of this type calls task(task_arg, i) once for each i in
 * [0, n), n >= 2, in any order and on any threads, and returns when all calls have returned. It is
 * called by the thread that computes a step; contexts that step at once call it at once. A monitor
 * is asked inside of a region only on the thread that called gqac_step. */
typedef void gqac_task(void *task_arg, int i);
typedef void gqac_parallel_for(void *arg, int n, gqac_task *task, void *task_arg);
/* `threads`: into how many tasks a region is cut at most. USAGE: as above, or run is NULL. */
GQAC_API gqac_status gqac_threads_wrap(int threads, gqac_parallel_for *run, void *arg,
                                       gqac_threads **created, gqac_diag *diag);
GQAC_API int gqac_threads_count(const gqac_threads *threads);
/* After the contexts that compute with them. NULL is fine. */
GQAC_API void gqac_threads_free(gqac_threads *threads);

#ifdef __cplusplus
}
#endif
#endif
