/* Runs a case of support.h and compares the results. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/shared.h"
#include "support_text.h"

static void fail(const op_case *c, const char *what) {
    char text[400];
    snprintf(text, sizeof text, "%s {%s} (%s): %s", c->op, c->attrs ? c->attrs : "", c->inputs,
             what);
    CU_assertImplementation(CU_FALSE, 0, text, "", "", CU_FALSE);
}

/* Integers and halves must be equal, f32 and f64 within a few ulp; NaN equals NaN, and zeros have
 * signs. */
static bool same(const gqac_tensor *a, const gqac_tensor *b, int64_t i) {
    if (!gqac_dtype_is_float(a->dtype))
        return op_get_i64(a, i) == op_get_i64(b, i);
    double x = op_get_f64(a, i), y = op_get_f64(b, i);
    if (x != x || y != y)
        return x != x && y != y;
    if (x == y)
        return signbit(x) == signbit(y);
    return gqac_dtype_bits(a->dtype) > 16 && fabs(x - y) <= 1e-6 * fabs(y);
}

static void compare(const op_case *c, const gqac_tensor *got, const gqac_tensor *want) {
    char text[128];
    bool shape = got->dtype == want->dtype && got->rank == want->rank;
    for (int i = 0; shape && i < want->rank; i++)
        shape = got->dims[i] == want->dims[i];
    if (!shape) {
        fail(c, "type or shape of the result");
        return;
    }
    for (int64_t i = 0; i < gqac_tensor_count(want); i++)
        if (!same(got, want, i)) {
            snprintf(text, sizeof text, "element %lld is %.9g, not %.9g", (long long)i,
                     op_get_f64(got, i), op_get_f64(want, i));
            fail(c, text);
            return;
        }
}

void run_case(const op_case *c) {
    op_probe p = {.op = c->op,
                  .domain = c->domain ? c->domain : "",
                  .attrs = c->attrs,
                  .opset = c->opset,
                  .raw = c->raw,
                  .arena = gqac_arena_create(0)};
    const char *list = c->inputs, *part;
    size_t length;
    while (p.n_in < SUPPORT_MAX && next_part(&list, &part, &length)) {
        if (*part != '_' && !(p.in[p.n_in] = parse_tensor(p.arena, part, length)))
            fail(c, "bad text of an input");
        p.n_in++;
    }
    const gqac_tensor *want[SUPPORT_MAX];
    for (list = c->outputs ? c->outputs : "_"; next_part(&list, &part, &length); p.n_out++) {
        want[p.n_out] = *part == '_' ? NULL : parse_tensor(p.arena, part, length);
        if (*part != '_' && !want[p.n_out])
            fail(c, "bad text of an output");
    }
    gqac_status status = run_probe(&p);
    if (status != c->status) {
        char text[1000];
        snprintf(text, sizeof text, "status %s: %s", gqac_status_name(status), p.diag.what);
        fail(c, text);
    }
    for (int i = 0; i < p.n_out && status == GQAC_OK && c->status == GQAC_OK; i++)
        if (want[i])
            compare(c, &p.out[i], want[i]);
    gqac_arena_free(p.arena);
}

void run_cases(const op_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++)
        run_case(&cases[i]);
}
