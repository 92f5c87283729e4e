/* Filling a gqac_diag, and the macro that fails; GQAC_TRY is in gqac/status.h. */
#ifndef GQAC_BASE_DIAG_H
#define GQAC_BASE_DIAG_H

#include <gqac/status.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Sets status and `what`, clears the other fields, and returns the status. diag may be NULL, here
 * and below. */
gqac_status gqac_diag_set(gqac_diag *diag, gqac_status status, const char *fmt, ...)
    GQAC_PRINTF(3, 4);
/* Adds a place before those that `where` already has ("model.onnx, node '/a' (Add)"): places are
 * added on the way out, innermost first. */
void gqac_diag_where(gqac_diag *diag, const char *fmt, ...) GQAC_PRINTF(2, 3);
void gqac_diag_rule(gqac_diag *diag, const char *fmt, ...) GQAC_PRINTF(2, 3);
void gqac_diag_hint(gqac_diag *diag, const char *fmt, ...) GQAC_PRINTF(2, 3);
/* vsnprintf for log lines and terminals: control characters (except tabs, and line ends if `lines`)
 * and bytes that are not UTF-8 become '?'; a text that does not fit ends in "...". */
void gqac_clean_vprintf(char *text, size_t size, bool lines, const char *fmt, va_list args);
/* NO_MEMORY; `what` becomes "out of memory for <purpose>". */
gqac_status gqac_diag_oom(gqac_diag *diag, const char *purpose);

/* The meaning of an errno, in English whatever the locale. Never NULL. */
const char *gqac_errno_text(int error);

/* Returns a failure: GQAC_FAIL(diag, GQAC_UNSUPPORTED, "opset %d", n). */
#define GQAC_FAIL(diag, ...) return gqac_diag_set((diag), __VA_ARGS__)

/* Returns the status of making an object: on success *out is the object, else it is freed. */
#define GQAC_RETURN_MADE(status, object, out, release)                                             \
    do {                                                                                           \
        const gqac_status gqac_made_status_ = (status);                                            \
        if (gqac_made_status_ == GQAC_OK)                                                          \
            *(out) = (object);                                                                     \
        else                                                                                       \
            release(object);                                                                       \
        return gqac_made_status_;                                                                  \
    } while (0)

#endif
