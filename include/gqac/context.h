/* A context: the memory and threads with which one thread of the caller runs a program. */
#ifndef GQAC_CONTEXT_H
#define GQAC_CONTEXT_H

#include <gqac/monitor.h>
#include <gqac/program.h>
#include <gqac/threads.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a context with `threads` threads of its own, counted as in gqac_threads_create. The
 * program must outlive the context, which the caller frees. USAGE, NO_MEMORY as
 * gqac_threads_create. */
typedef struct gqac_context gqac_context;
GQAC_API gqac_status gqac_context_create(const gqac_program *program, int threads,
                                         gqac_context **context, gqac_diag *diag);
/* A context on threads that other contexts may share; they must outlive it. USAGE: threads is
 * NULL. */
GQAC_API gqac_status gqac_context_create_on(const gqac_program *program, gqac_threads *threads,
                                            gqac_context **context, gqac_diag *diag);
GQAC_API void gqac_context_free(gqac_context *context);
/* Sets the monitor of later steps and runs of the context; NULL: none. *monitor is copied; its
 * `arg` must stay valid until it is replaced. The previous monitor is stored in *before, whose
 * `size` the caller sets; its functions are NULL if there was none. `before` may be NULL, or equal
 * to `monitor`. USAGE: an impossible size. */
GQAC_API gqac_status gqac_context_set_monitor(gqac_context *context, const gqac_monitor *monitor,
                                              gqac_monitor *before, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
