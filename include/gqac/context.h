/* A context: what one thread needs to run a program. */
#ifndef GQAC_CONTEXT_H
#define GQAC_CONTEXT_H

#include <gqac/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch memory and threads. threads >= 1. */
typedef struct gqac_context gqac_context;
GQAC_API gqac_status gqac_context_create(const gqac_program *program, int threads,
                                         gqac_context **context, gqac_diag *diag);
GQAC_API void gqac_context_free(gqac_context *context);

#ifdef __cplusplus
}
#endif
#endif
