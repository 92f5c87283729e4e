/* linear: y [..,N] = x [..,K] times a constant weight [K,N] (+ bias [N]), the weight packed
 * (ops/panels.h). The product is MatMul's; bias is added to it in fp32, and the sum is rounded once
 * to the type of y. The pass `pack` makes it for targets with a kernel for it; for other targets
 * and for files it expands to MatMul (and Add), with the weight unpacked. */
#include "ops/linear.h"
#include "ops/build.h"

#include <string.h>

enum { X = LINEAR_X, W = LINEAR_W, BIAS = LINEAR_BIAS };

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    return linear_verify(node, false, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, W, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, X, W, diag));
    GQAC_TRY(op_check_same(node, BIAS, W, diag));
    return linear_infer(node, op_in_type(node, W).dtype, diag);
}

/* The weight [K,N] as a constant of type `to`: its own or f32. */
static ir_value *unpacked(ir_builder *b, const ir_node *node, gqac_dtype to) {
    const ir_value *source = ir_node_input(node, W);
    const gqac_tensor *w = source->constant;
    const int64_t n = ir_attr_int(node, "n"), k = ir_attr_int(node, "k");
    const size_t size = op_width(w->dtype);
    void *data;
    if (!w->data)
        op_refuse(b, node, "the weight %%%s has no data", source->name);
    ir_value *value =
        op_build_constant(b, source->graph, source->name, to, 2, (int64_t[]){k, n}, &data);
    for (int64_t row = 0; value && row < k; row++)
        for (int64_t column = 0; column < n; column += LINEAR_PANEL) {
            const int64_t count = n - column < LINEAR_PANEL ? n - column : LINEAR_PANEL;
            const int64_t from = (column / LINEAR_PANEL * k + row) * LINEAR_PANEL;
            char *out = (char *)data + (size_t)(row * n + column) * op_width(to);
            if (to == w->dtype)
                memcpy(out, (const char *)w->data + (size_t)from * size, (size_t)count * size);
            else
                op_get_f32s(w, from, count, (float *)(void *)out);
        }
    return value;
}

/* One rounding after the bias: with 16-bit types all of it is done in f32. */
static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    const gqac_dtype dtype = ir_node_input(node, W)->constant->dtype;
    ir_value *x = ir_node_input(node, X), *bias = ir_node_input(node, BIAS);
    const bool widen = bias && dtype != GQAC_F32;
    (void)options;
    ir_value *w = unpacked(b, node, widen ? GQAC_F32 : dtype);
    if (widen)
        x = op_build_cast(b, x, GQAC_F32);
    ir_value *y = OP_BUILD(b, "MatMul", .in = {x, w});
    if (bias)
        y = OP_BUILD(b, "Add", .in = {y, widen ? op_build_cast(b, bias, GQAC_F32) : bias});
    results[0] = widen ? op_build_cast(b, y, dtype) : y;
}

const gqac_op gqac_op_linear = {
    .schema = {.name = "linear",
               .domain = "gqac",
               .since = 1,
               .inputs = "x w bias?",
               .outputs = "y",
               .attrs = linear_attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y [..,N] = x [..,K] w + bias, w constant in panels [ceil(N/64),K,64]"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .standard = op_expand_standard,
};
