/* See compare.h. */
#include "cli/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool same_shape(const gqac_tensor *a, const gqac_tensor *b) {
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->dims[d] == b->dims[d];
    return same;
}

/* True if element i lies in a row that is compared. */
static bool is_wanted(const gqac_tensor *t, const int64_t *rows, int64_t i) {
    if (!rows || t->rank != 4)
        return true;
    const int64_t b = i / (t->dims[1] * t->dims[2] * t->dims[3]), row = i / t->dims[3] % t->dims[2];
    return rows[b] < 0 || row < rows[b];
}

static bool is_close(const gqac_tensor *actual, const gqac_tensor *expected, int64_t i) {
    const double a = gqac_tensor_get(actual, i), e = gqac_tensor_get(expected, i);
    if (!gqac_dtype_is_float(expected->dtype)) {
        const int bits = gqac_dtype_bits(expected->dtype);
        if (bits == 64) /* beyond 2^53 a double is not exact */
            return ((const int64_t *)actual->data)[i] == ((const int64_t *)expected->data)[i];
        return a == e;
    }
    if (isnan(a) || isnan(e))
        return isnan(a) && isnan(e);
    if (isinf(a) || isinf(e))
        return a == e;
    const bool half = gqac_dtype_bits(expected->dtype) == 16;
    return fabs(a - e) <= (half ? 1e-3 + 1e-2 * fabs(e) : 1e-7 + 1e-3 * fabs(e));
}

compare_count compare_elements(const gqac_tensor *actual, const gqac_tensor *expected,
                               const int64_t *rows) {
    const int64_t n = gqac_tensor_count(expected);
    compare_count r = {.first = -1};
    if (!same_shape(actual, expected))
        return (compare_count){.compared = n, .differing = n ? n : 1, .first = -1};
    for (int64_t i = 0; i < n; i++) {
        if (!is_wanted(expected, rows, i))
            continue;
        r.compared++;
        if (!is_close(actual, expected, i) && r.differing++ == 0)
            r.first = i;
    }
    return r;
}

void compare_clear_rows(gqac_tensor *t, const int64_t *rows) {
    if (t->rank != 4 || gqac_dtype_bits(t->dtype) < 8)
        return;
    const size_t row = (size_t)(t->dims[3] * gqac_dtype_bits(t->dtype) / 8);
    for (int64_t b = 0; b < t->dims[0]; b++)
        for (int64_t h = 0; rows[b] >= 0 && rows[b] < t->dims[2] && h < t->dims[1]; h++)
            memset((char *)t->data + (size_t)((b * t->dims[1] + h) * t->dims[2] + rows[b]) * row, 0,
                   (size_t)(t->dims[2] - rows[b]) * row);
}

gqac_status compare_valid_rows(cli *c, const gqac_context *context, int n_in,
                               const char *const *names, const gqac_tensor *in, int n_out,
                               const gqac_tensor *results, int64_t *batch, int64_t **rows) {
    *batch = 1;
    for (int i = 0; i < n_out; i++)
        if (results[i].rank == 4 && results[i].dims[0] > *batch)
            *batch = results[i].dims[0];
    *rows = calloc((size_t)n_out * (size_t)*batch + 1, sizeof **rows);
    if (!*rows)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    return gqac_run_valid_rows(context, n_in, names, in, n_out, NULL, *batch, *rows, &c->diag);
}
