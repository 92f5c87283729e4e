/* The log: lines about what the library does, for a host that keeps a log. Errors are not logged;
 * calls return them. */
#ifndef GQAC_LOG_H
#define GQAC_LOG_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gqac_log_level {
    GQAC_LOG_NONE,
    GQAC_LOG_WARNING, /* what may surprise a user: rows are padded, results depend on the split into
                         calls, kernels of a device must be compiled first */
    GQAC_LOG_INFO,    /* a model was opened or compiled: number of values, instruction set, numerics
                         profile, seconds */
    GQAC_LOG_DEBUG,   /* each pass and each step with its time, each new context */
} gqac_log_level;

/* Passed in gqac_options. The struct is copied; `arg` must live as long as the program. The call
 * that opens or compiles the model writes to it, and so does every context of the program. */
typedef struct gqac_log {
    size_t size;
    /* Receives one line, without a newline, valid during the call; control characters in names are
     * replaced by '?'. It is called on the thread that called the library, so several threads may
     * call it at the same time. It must not call the library. */
    void (*line)(void *arg, gqac_log_level level, const char *text);
    void *arg;
    gqac_log_level level; /* lines up to this level; GQAC_LOG_NONE: none */
} gqac_log;

#ifdef __cplusplus
}
#endif
#endif
