/* A context: what one thread needs to run a program. */
#ifndef GQAC_CONTEXT_H
#define GQAC_CONTEXT_H

#include <gqac/monitor.h>
#include <gqac/program.h>
#include <gqac/threads.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch memory, and threads of its own: as many as gqac_threads_create takes them, 0 for the
 * cores that the process may use. */
typedef struct gqac_context gqac_context;
GQAC_API gqac_status gqac_context_create(const gqac_program *program, int threads,
                                         gqac_context **context, gqac_diag *diag);
/* The same on threads that other contexts may share; they must outlive it. */
GQAC_API gqac_status gqac_context_create_on(const gqac_program *program, gqac_threads *threads,
                                            gqac_context **context, gqac_diag *diag);
GQAC_API void gqac_context_free(gqac_context *context);
/* Who watches the later steps and runs of the context and may end them; monitor NULL: nobody. What
 * held before goes to *before, whose size is set, and which may be NULL or `monitor` itself;
 * without functions if that was nobody. USAGE: a size that cannot be. */
GQAC_API gqac_status gqac_context_set_monitor(gqac_context *context, const gqac_monitor *monitor,
                                              gqac_monitor *before, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
