/* Threads for contexts. Results do not depend on their number. */
#ifndef GQAC_THREADS_H
#define GQAC_THREADS_H

#include <gqac/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Worker threads that any number of contexts may share (gqac_context_create_on), even contexts that
 * run at the same time on different threads of the caller. The work of a step is a list of regions,
 * each split over all workers. One region runs at a time; other contexts wait for their turn, in
 * the order of their requests. The work between regions runs on the caller's thread and waits for
 * nobody. Contexts that should compute at the same time without waiting need one gqac_threads
 * each. */
typedef struct gqac_threads gqac_threads;

/* Number of processor cores that this process may use, at least 1: the cores of its affinity mask,
 * but no more than the CPU quota of its cgroup. Two hardware threads of one core count once. */
GQAC_API int gqac_threads_default(void);
/* Starts worker threads. `threads` is the number of threads that compute, including the thread that
 * calls gqac_step; 0: gqac_threads_default. The caller frees *created with gqac_threads_free.
 * USAGE: `threads` is negative or more than 1024; NO_MEMORY: a thread cannot be started. */
GQAC_API gqac_status gqac_threads_create(int threads, gqac_threads **created, gqac_diag *diag);

/* One task of a region. */
typedef void gqac_task(void *task_arg, int i);
/* Lets a caller lend its own threads (gqac_threads_wrap). It calls task(task_arg, i) once for
 * each i in [0, n), n >= 2, in any order and on any threads, and returns when all of these calls
 * have returned. It is called on the thread that calls gqac_step, so contexts that step at the same
 * time call it at the same time. Inside a region, a monitor is called only on the thread that
 * called gqac_step. */
typedef void gqac_parallel_for(void *arg, int n, gqac_task *task, void *task_arg);
/* Creates a gqac_threads that has no workers and uses threads of the caller through `run`.
 * `threads` is the maximum of n, the number of tasks in a region; 0: gqac_threads_default. `arg` is
 * passed to `run` and must live as long as *created. USAGE: `threads` is negative or more than
 * 1024, or `run` is NULL. */
GQAC_API gqac_status gqac_threads_wrap(int threads, gqac_parallel_for *run, void *arg,
                                       gqac_threads **created, gqac_diag *diag);
GQAC_API int gqac_threads_count(const gqac_threads *threads); /* as given, or the default */
/* Frees the threads, after all contexts that use them. NULL is allowed. */
GQAC_API void gqac_threads_free(gqac_threads *threads);

#ifdef __cplusplus
}
#endif
#endif
