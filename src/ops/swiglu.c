/* SwiGLU: y = Swish(a) b, of equal shapes. Becomes Swish and Mul. Source: ONNX operator spec. */
#include "ops/build.h"
#include "ops/shared.h"

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("alpha", 1, "factor inside the sigmoid of Swish"),
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_type a = op_in_type(node, 0), b = op_in_type(node, 1);
    int64_t m, n;
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    if (a.rank >= 0 && b.rank >= 0 && a.rank != b.rank)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "A has rank %d, but B has rank %d", a.rank, b.rank);
    for (int i = 0; i < a.rank && i < b.rank; i++)
        if (ir_dim_is_const(a.dims[i], &m) && ir_dim_is_const(b.dims[i], &n) && m != n)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "dimension %d is %lld in A, but %lld in B", i,
                    (long long)m, (long long)n);
    return op_set_type_like(node, 0, a, diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    ir_value *gate = OP_BUILD(b, "Swish", .in = {ir_node_input(node, 0)}, .of = node);
    results[0] = OP_BUILD(b, "Mul", .in = {gate, ir_node_input(node, 1)});
}

const gqac_op gqac_op_swiglu = {
    .schema = {.name = "SwiGLU",
               .domain = "",
               .since = 28,
               .introduced = 28,
               .inputs = "A B",
               .outputs = "Y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "Y = Swish(A) B"},
    .infer = infer,
    .expand = expand,
};
