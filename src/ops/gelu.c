/* Gelu: y = x/2 (1 + erf(x/sqrt 2)), or with approximate "tanh"
 * y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include <string.h>

#include "numerics/math.h"
#include "ops/kernel.h"

OP_SPAN1_FMA(exact, op_one_nan(0.5f * x * (1.0f + gqn_erff(x * 0x1.6a09e6p-1f))))
OP_SPAN1_FMA(approximate,
             op_one_nan(0.5f * x *
                        (1.0f + gqn_tanhf(0x1.988454p-1f * (x + 0.044715f * (x * x * x))))))

static const op_unary by_erf = {.f32 = exact};
static const op_unary by_tanh = {.f32 = approximate};

static bool is(const ir_node *node, const char *mode) {
    const char *text = ir_attr_get(node, "approximate")->s;
    return text && strcmp(text, mode) == 0;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    if (!is(node, "none") && !is(node, "tanh"))
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute approximate must be none or tanh");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_unary_infer(node, &by_erf, diag);
}

static gqac_status eval(op_call *call) {
    return op_unary_eval_with(call, is(call->node, "tanh") ? &by_tanh : &by_erf, NULL);
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_STRING("approximate", "none", "none or tanh"),
    {.name = NULL},
};

const gqac_op gqac_op_gelu = {
    .schema = {.name = "Gelu",
               .domain = "",
               .since = 20,
               .introduced = 20,
               .inputs = "x",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y = x/2 (1 + erf(x/sqrt 2)), or its tanh approximation"},
    .verify = verify,
    .infer = infer,
    .eval = eval,
};
