/* com.microsoft.FusedGemm: Gemm followed by an activation, which ONNX Runtime has fused. Becomes
 * the two ops. Source: ONNX Runtime contrib operators. */
#include "ops/build.h"
#include "ops/shared.h"

#include <string.h>

static const ir_attr_spec attrs[] = {
    {.name = "activation", .kind = IR_ATTR_STRING, .required = true, .doc = "name of an ONNX op"},
    {.name = "activation_alpha", .kind = IR_ATTR_FLOAT, .doc = "its attribute alpha"},
    {.name = "activation_beta", .kind = IR_ATTR_FLOAT, .doc = "its attribute beta"},
    {.name = "activation_gamma", .kind = IR_ATTR_FLOAT, .doc = "its attribute gamma"},
    OP_ATTR_FLOAT("alpha", 1, "factor of the product"),
    OP_ATTR_FLOAT("beta", 1, "factor of C"),
    OP_ATTR_INT("transA", 0, "A is [K,M]"),
    OP_ATTR_INT("transB", 0, "B is [N,K]"),
    {.name = NULL},
};

/* The activations, and the first letters of their attributes. */
static const struct {
    const char *op, *letters;
} activations[] = {
    {"Elu", "a"},   {"HardSigmoid", "ab"},    {"LeakyRelu", "a"}, {"Relu", ""},
    {"Selu", "ag"}, {"Sigmoid", ""},          {"Softplus", ""},   {"Softsign", ""},
    {"Tanh", ""},   {"ThresholdedRelu", "a"},
};

/* The index of the activation; -1: it is not one of these. */
static int activation_of(const ir_node *node) {
    const char *name = ir_attr_get(node, "activation")->s;
    for (int i = 0; i < (int)(sizeof activations / sizeof *activations); i++)
        if (name && strcmp(name, activations[i].op) == 0)
            return i;
    return -1;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    static const char *const names[] = {"activation_alpha", "activation_beta", "activation_gamma"};
    for (int i = 0; i < 3; i++)
        GQAC_TRY(op_check_float(node, names[i], true, diag));
    const char *name = ir_attr_get(node, "activation")->s;
    if (activation_of(node) < 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute activation = '%s' is not supported",
                name ? name : "");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    return op_find("", "Gemm")->infer(node, diag);
}

static bool mixes(const ir_node *node) {
    return op_find("", "Gemm")->mixes(node);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    static const char *const names[] = {"alpha", "beta", "gamma"};
    static const char *const own[] = {"activation_alpha", "activation_beta", "activation_gamma"};
    const int at = activation_of(node);
    op_line line = {0};
    (void)options;
    line.in[0] = OP_BUILD(
        b, "Gemm", .in = {ir_node_input(node, 0), ir_node_input(node, 1), ir_node_input(node, 2)},
        .of = node, .same = {"alpha", "beta", "transA", "transB"});
    for (int i = 0, n = 0; i < 3; i++) {
        if (!strchr(activations[at].letters, *names[i]) || !ir_attr_is_set(node, own[i]))
            continue;
        line.floats[n].name = names[i];
        line.floats[n++].value = ir_attr_float(node, own[i]);
    }
    results[0] = op_build_line(b, activations[at].op, &line);
}

const gqac_op gqac_op_fused_gemm = {
    .schema = {.name = "FusedGemm",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "A B C?",
               .outputs = "Y",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "Y = activation(alpha * A B + beta * C), A and B optionally transposed"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .mixes = mixes,
};
