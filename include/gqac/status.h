/* Status codes and diagnostics: how every function of gqac that can fail reports it.
 *
 * A function that can fail returns a gqac_status. On failure it also fills the caller's gqac_diag
 * with what went wrong, where, which rule was broken and what to try. On success the diag is not
 * changed. The pointer to it may be NULL. */
#ifndef GQAC_STATUS_H
#define GQAC_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GQAC_API          __attribute__((visibility("default")))
#define GQAC_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define GQAC_API
#define GQAC_PRINTF(f, a)
#endif

typedef enum gqac_status {
#define GQAC_STATUS(name, exit_code, meaning) GQAC_##name,
#include <gqac/status.def>
    GQAC_STATUS_COUNT
} gqac_status;

/* A failure in words. Every text is NUL-terminated UTF-8; all but `what` may be empty. */
typedef struct gqac_diag {
    gqac_status status;
    int index;       /* index, from 0, of the gqac_step item that failed; -1: no single item */
    char what[768];  /* what went wrong, with the offending value */
    char where[512]; /* file, node and op, outermost first, separated by ", " */
    char rule[256];  /* the rule that was broken */
    char hint[256];  /* what to try */
} gqac_diag;

/* Evaluates a call; if it fails, returns its status from the enclosing function. */
#define GQAC_TRY(call)                                                                             \
    do {                                                                                           \
        gqac_status gqac_try_status_ = (call);                                                     \
        if (gqac_try_status_ != GQAC_OK)                                                           \
            return gqac_try_status_;                                                               \
    } while (0)

/* Name of a status, e.g. "INVALID_MODEL". Never NULL. */
GQAC_API const char *gqac_status_name(gqac_status status);
/* One line of meaning, e.g. "a comparison failed". Never NULL. */
GQAC_API const char *gqac_status_meaning(gqac_status status);
/* Exit code of the command line for a status; status.def has all of them. */
GQAC_API int gqac_status_exit_code(gqac_status status);

#ifdef __cplusplus
}
#endif
#endif
