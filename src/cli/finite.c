/* See finite.h. */
#include "cli/finite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_wrong(double x) {
    return isnan(x) || (isinf(x) && x > 0);
}

static void look(void *arg, const gqac_observed *seen) {
    finite_finding *f = arg;
    const gqac_tensor *t = seen->tensor;
    if (f->found || !gqac_dtype_is_float(t->dtype))
        return;
    const int64_t n = gqac_tensor_count(t);
    for (int64_t i = 0; i < n; i++) {
        const double x = gqac_tensor_get(t, i);
        if (!is_wrong(x))
            continue;
        f->found = true;
        f->number = x;
        f->rank = t->rank;
        int64_t left = i;
        for (int k = t->rank - 1; k >= 0; left /= t->dims[k--])
            f->at[k] = left % t->dims[k];
        snprintf(f->node, sizeof f->node, "%s", seen->node ? seen->node : "");
        snprintf(f->value, sizeof f->value, "%s", seen->value ? seen->value : "");
        snprintf(f->op, sizeof f->op, "%s", seen->op);
        return;
    }
}

void finite_watch(finite_finding *f, gqac_context *context) {
    gqac_context_observe(context, look, f);
}

gqac_status finite_check(cli *c, const finite_finding *f) {
    if (!f->found)
        return GQAC_OK;
    cli_fail(c, GQAC_MISMATCH, "a result is %s: element %s%s%s",
             isnan(f->number) ? "not a number" : "infinite", cli_bracketed(f->rank, f->at).s,
             *f->value ? " of " : "", f->value);
    cli_where(c, "%s%s%s (%s)", *f->node ? "node '" : "the first node", f->node,
              *f->node ? "'" : "", f->op);
    cli_rule(c, "--check-finite: every result is finite, or minus infinity as in masks");
    cli_hint(c, "--target ref, which computes nodes one by one; --math exact, if values are too "
                "large for their type");
    return GQAC_MISMATCH;
}
