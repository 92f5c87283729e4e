/* Log lines: what the library does, for a host that wants to write it down. Errors are not among
 * them: those are what calls return. */
#ifndef GQAC_LOG_H
#define GQAC_LOG_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gqac_log_level {
    GQAC_LOG_NONE,
    GQAC_LOG_WARNING, /* what a user may not expect: rows are padded, results depend on the split */
    GQAC_LOG_INFO,    /* a model was opened (which compiling does too): values, level, profile,
                         seconds */
    GQAC_LOG_DEBUG,   /* each pass and each step of sequences with its time, each context */
} gqac_log_level;

/* Given in gqac_options. The struct is copied; `arg` must live as long as the program. The call
 * that opens or compiles logs with it, and so does every context of the program. */
typedef struct gqac_log {
    size_t size;
    /* One line without its end, valid during the call; control characters of names in it are '?'.
     * It comes from the thread that called the library, so several threads may call it at the same
     * time. It must not call the library. */
    void (*line)(void *arg, gqac_log_level level, const char *text);
    void *arg;
    gqac_log_level level; /* lines up to this level; GQAC_LOG_NONE: none */
} gqac_log;

#ifdef __cplusplus
}
#endif
#endif
