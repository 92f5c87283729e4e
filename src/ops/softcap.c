/* y = cap * tanh(s / cap), fp32. */
#include "ops/elementwise.h"

#include <math.h>

#include "numerics/math.h"
#include "ops/kernel.h"

static const ir_attr_spec attrs[] = {
    {"cap", IR_ATTR_FLOAT, .required = true, .doc = "limit of the result, > 0"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    float cap = ir_attr_float(node, "cap");
    if (!(cap > 0) || !isfinite(cap))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute cap = %g: must be finite and positive",
                (double)cap);
    return GQAC_OK;
}

OP_BODY void capped_body(float *y, const float *s, size_t n, const void *arg) {
    float cap = *(const float *)arg;
    for (size_t i = 0; i < n; i++)
        y[i] = cap * gqn_tanhf(s[i] / cap);
}
OP_KERNEL(capped, (float *y, const float *s, size_t n, const void *arg), (y, s, n, arg))

OP_UNARY(.f32 = capped)

const gqac_op gqac_op_softcap = {
    .schema = {.name = "softcap",
               .domain = "gqac",
               .since = 1,
               .inputs = "s",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = cap * tanh(s / cap)"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
