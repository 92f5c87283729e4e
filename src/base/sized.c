/* Structs that begin with their size: see sized.h. */
#include "base/sized.h"

#include <string.h>

enum { MOST = 4096 }; /* larger than any struct of gqac; more means that size was never set */

/* Reads the size of `given`, and checks that it is possible. */
static gqac_status read_size(const void *given, const char *name, size_t known, size_t *size,
                             gqac_diag *diag) {
    memcpy(size, given, sizeof *size);
    if (*size >= sizeof *size && *size <= MOST && *size % sizeof *size == 0)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_USAGE, "%s.size is %zu", name, *size);
    gqac_diag_rule(diag, "a struct of gqac begins with its size, here %zu", known);
    gqac_diag_hint(diag, "%s x = {.size = sizeof x}", name);
    return GQAC_USAGE;
}

gqac_status gqac_sized_take(void *own, size_t size, const void *given, const char *name,
                            gqac_diag *diag) {
    size_t n = size;
    if (given) {
        GQAC_TRY(read_size(given, name, size, &n, diag));
        memcpy(own, given, n < size ? n : size);
        for (size_t i = size; i < n; i++)
            if (((const unsigned char *)given)[i]) {
                gqac_diag_set(diag, GQAC_USAGE, "%s has a value in its field at byte %zu", name, i);
                gqac_diag_rule(diag, "this version of gqac knows the first %zu bytes", size);
                gqac_diag_hint(diag, "the program was built for a newer gqac");
                return GQAC_USAGE;
            }
    }
    memcpy(own, &size, sizeof size);
    return GQAC_OK;
}

gqac_status gqac_sized_give(void *out, const void *own, size_t size, const char *name,
                            gqac_diag *diag) {
    size_t n = 0;
    GQAC_TRY(read_size(out, name, size, &n, diag));
    memset(out, 0, n);
    memcpy(out, own, n < size ? n : size);
    memcpy(out, &n, sizeof n);
    return GQAC_OK;
}
