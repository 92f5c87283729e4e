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
    gqac_diag_set(diag, GQAC_USAGE,
                  "the field %s.size is %zu, which cannot be the size of the struct", name, *size);
    gqac_diag_rule(diag, "a struct of gqac begins with its size in bytes: here %zu", known);
    gqac_diag_hint(diag, "set it when the struct is initialised: %s x = {.size = sizeof x}", name);
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
                gqac_diag_set(diag, GQAC_USAGE,
                              "%s has a value in a field (at byte %zu) that this version of gqac "
                              "does not know",
                              name, i);
                gqac_diag_rule(diag,
                               "this version of gqac knows the first %zu bytes of the struct; the "
                               "others must be 0",
                               size);
                gqac_diag_hint(
                    diag,
                    "use the version of gqac for which the program was built, or a newer one");
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
