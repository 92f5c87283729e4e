/* Filling a gqac_diag, and the macro GQAC_FAIL; GQAC_TRY is in gqac/status.h. */
#ifndef GQAC_BASE_DIAG_H
#define GQAC_BASE_DIAG_H

#include <gqac/status.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Sets diag->status and diag->what, clears the other fields, and returns the status. Here and below
 * diag may be NULL. */
gqac_status gqac_diag_set(gqac_diag *diag, gqac_status status, const char *fmt, ...)
    GQAC_PRINTF(3, 4);
/* Puts a file, pass or node before what diag->where already has ("model.onnx, node '/a' (Add)").
 * Callers add theirs while the failure returns through them, innermost first. */
void gqac_diag_where(gqac_diag *diag, const char *fmt, ...) GQAC_PRINTF(2, 3);
void gqac_diag_rule(gqac_diag *diag, const char *fmt, ...) GQAC_PRINTF(2, 3);
void gqac_diag_hint(gqac_diag *diag, const char *fmt, ...) GQAC_PRINTF(2, 3);
/* vsnprintf for log lines and terminals: control characters (except tabs, and line ends if `lines`)
 * and bytes that are not UTF-8 become '?'; a text that does not fit ends in "...". */
void gqac_clean_vprintf(char *text, size_t size, bool lines, const char *fmt, va_list args);
/* Fails with NO_MEMORY: "out of memory for <purpose>". */
gqac_status gqac_diag_oom(gqac_diag *diag, const char *purpose);

/* The meaning of an errno, in English whatever the locale. Never NULL. */
const char *gqac_errno_text(int error);

/* Returns a failure: GQAC_FAIL(diag, GQAC_UNSUPPORTED, "opset %d", n). */
#define GQAC_FAIL(diag, ...) return gqac_diag_set((diag), __VA_ARGS__)

/* Ends a function that creates an object: on success stores the object in *out, else frees it;
 * returns the status. */
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
