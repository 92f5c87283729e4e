/* Contexts: the memory and the threads with which a program runs. One thread of the caller uses a
 * context at a time. */
#ifndef GQAC_CONTEXT_H
#define GQAC_CONTEXT_H

#include <gqac/monitor.h>
#include <gqac/program.h>
#include <gqac/threads.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_context gqac_context;
/* Creates a context with threads of its own. `threads` is their number, including the thread that
 * calls gqac_step; 0: gqac_threads_default. The program must outlive the context, which the caller
 * frees. Errors are those of gqac_threads_create. */
GQAC_API gqac_status gqac_context_create(const gqac_program *program, int threads,
                                         gqac_context **context, gqac_diag *diag);
/* Creates a context on `threads`, which other contexts may share and which must outlive the
 * context. USAGE: threads is NULL. */
GQAC_API gqac_status gqac_context_create_on(const gqac_program *program, gqac_threads *threads,
                                            gqac_context **context, gqac_diag *diag);
GQAC_API void gqac_context_free(gqac_context *context);
/* Frees the memory that the context keeps for its next call, which then allocates what it needs.
 * Logits and outputs of the last call are no longer valid. */
GQAC_API void gqac_context_trim(gqac_context *context);
GQAC_API const gqac_program *gqac_context_program(const gqac_context *context); /* never NULL */
/* Sets the monitor of later steps and runs of the context; NULL: none. *monitor is copied;
 * monitor->arg must stay valid until the monitor is replaced. *before, whose `size` the caller
 * sets, receives the previous monitor; its functions are NULL if there was none. `before` may be
 * NULL, or equal to `monitor`. USAGE: `size` of a monitor is not that of any version of the struct
 * (see options.h). */
GQAC_API gqac_status gqac_context_set_monitor(gqac_context *context, const gqac_monitor *monitor,
                                              gqac_monitor *before, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
