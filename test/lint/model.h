/* What tools/analyse.py tells gcc -fanalyzer before each source: if functions of other sources
 * fail, they return the status that they are given, which is not OK. */
#include "base/diag.h"

static inline gqac_status analysed_oom(gqac_diag *diag, const char *purpose) {
    return gqac_diag_oom(diag, purpose), GQAC_NO_MEMORY;
}
#define gqac_diag_oom(diag, purpose) analysed_oom((diag), (purpose))
#undef GQAC_FAIL
#define GQAC_FAIL(diag, status, ...) return gqac_diag_set((diag), (status), __VA_ARGS__), (status)
