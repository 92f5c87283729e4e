/* The limits of a call, and failures that name them. */
#ifndef GQAC_BASE_LIMITS_H
#define GQAC_BASE_LIMITS_H

#include <gqac/limits.h>

#include "base/diag.h"

/* Copies the caller's limits (NULL: all defaults) with defaults in place of 0. USAGE: a limit is
 * negative or too large. */
gqac_status gqac_limits_take(gqac_limits *own, const gqac_limits *given, gqac_diag *diag);
/* Fails with LIMIT, and says which limit it was and how to raise it. */
gqac_status gqac_limits_fail(gqac_diag *diag, const char *name, int64_t limit, const char *fmt, ...)
    GQAC_PRINTF(4, 5);
/* Sets the rule and the hint of such a failure. */
void gqac_limits_explain(gqac_diag *diag, const char *name, int64_t limit);

#endif
