/* The floating-point mode in which results are computed: rounding to nearest, nothing flushed to
 * zero. Calls that compute set it when they begin, and restore the caller's mode when they end. */
#ifndef GQAC_BASE_FLOAT_MODE_H
#define GQAC_BASE_FLOAT_MODE_H

#include <fenv.h>

#include "base/diag.h"

typedef fenv_t gqac_float_mode;

static inline gqac_status gqac_float_mode_take(gqac_float_mode *callers, gqac_diag *diag) {
    if (fegetenv(callers) == 0 && fesetenv(FE_DFL_ENV) == 0)
        return GQAC_OK;
    GQAC_FAIL(diag, GQAC_INTERNAL, "cannot set the floating-point mode of this thread");
}

static inline void gqac_float_mode_give_back(const gqac_float_mode *callers) {
    (void)fesetenv(callers);
}

#endif
