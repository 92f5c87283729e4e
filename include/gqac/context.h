/* A context: what one thread needs to run a program. */
#ifndef GQAC_CONTEXT_H
#define GQAC_CONTEXT_H

#include <gqac/monitor.h>
#include <gqac/program.h>
#include <gqac/threads.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch memory and threads of its own; `threads` as in gqac_threads_create. The program must
 * outlive the context. */
typedef struct gqac_context gqac_context;
GQAC_API gqac_status gqac_context_create(const gqac_program *program, int threads,
                                         gqac_context **context, gqac_diag *diag);
/* The same on threads that other contexts may share; they must outlive it. */
GQAC_API gqac_status gqac_context_create_on(const gqac_program *program, gqac_threads *threads,
                                            gqac_context **context, gqac_diag *diag);
GQAC_API void gqac_context_free(gqac_context *context);
/* Sets who watches later steps and runs of the context and may end them; NULL: nobody. *monitor is
 * copied; its `arg` must stay valid until it is replaced. The previous monitor is stored in *before
 * (NULL: not wanted; it may be `monitor` itself), whose `size` the caller has set; it has no
 * functions if there was none. USAGE: a size that cannot be. */
GQAC_API gqac_status gqac_context_set_monitor(gqac_context *context, const gqac_monitor *monitor,
                                              gqac_monitor *before, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
