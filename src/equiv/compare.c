/* How far two tensors are apart. */
#include <gqac/equiv.h>
#include <gqac/files.h>

#include <math.h>

static bool same_shape(const gqac_tensor *a, const gqac_tensor *b) {
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->dims[d] == b->dims[d];
    return same;
}

/* Infinite if one of them is NaN or infinite and the other is not the same. */
static double distance(double a, double e) {
    if (isfinite(a) && isfinite(e))
        return fabs(a - e);
    return a == e || (isnan(a) && isnan(e)) ? 0 : INFINITY;
}

gqac_comparison gqac_compare(const gqac_tensor *actual, const gqac_tensor *expected) {
    gqac_comparison r = {.relative = INFINITY, .index = -1};
    if (!same_shape(actual, expected))
        return r;
    double farthest = -1, largest = 0;
    const int64_t n = gqac_tensor_count(expected);
    for (int64_t i = 0; i < n; i++) {
        const double a = gqac_tensor_get(actual, i), e = gqac_tensor_get(expected, i);
        const double d = distance(a, e);
        if (isfinite(e) && fabs(e) > largest)
            largest = fabs(e);
        if (d > farthest) {
            farthest = d;
            r.index = i;
            r.actual = a;
            r.expected = e;
        }
    }
    r.relative = farthest <= 0 ? 0 : largest > 0 ? farthest / largest : INFINITY;
    return r;
}
