/* linear_bf16: y [..,N] = x [..,K] times a constant weight [K,N] (+ bias [N]) in products of bf16
 * factors, which --math bf16 allows: both factors are rounded to bf16 (gqn_bf16_factor), sums and
 * bias are fp32, and y is rounded once to the type of x. The weight is packed (ops/panels.h), and
 * was rounded then. Kernels of targets compute gqn_dot_pairs; without a kernel it expands to Cast
 * and MatMul, whose sums have the same terms in another order. */
#include <string.h>

#include "numerics/convert.h"
#include "ops/build.h"
#include "ops/linear.h"

enum { X = LINEAR_X, W = LINEAR_W, BIAS = LINEAR_BIAS };

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    return linear_verify(node, true, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, X, OP_FLOATS, diag));
    GQAC_TRY(op_check_dtype(node, W, OP_BIT(BF16), diag));
    GQAC_TRY(op_check_dtype(node, BIAS, OP_FLOATS, diag));
    return linear_infer(node, op_in_type(node, X).dtype, diag);
}

/* ---- expand -------------------------------------------------------------- */

/* w f32 [k,n] from pairs. */
static void unpack(const uint16_t *pairs, int64_t k, int64_t n, float *w) {
    for (int64_t row = 0; row < k; row++)
        for (int64_t column = 0; column < n; column++) {
            const int64_t panel = column / LINEAR_PANEL * linear_pairs(k);
            const int64_t at = (panel + row / 2) * LINEAR_PAIRS + column % LINEAR_PANEL * 2;
            w[row * n + column] = gqn_bf16_to_f32(pairs[at + row % 2]);
        }
}

/* The weight [K,N] in fp32. */
static ir_value *unpacked(ir_builder *b, const ir_node *node) {
    const ir_value *source = ir_node_input(node, W);
    const int64_t n = ir_attr_int(node, "n"), k = ir_attr_int(node, "k");
    void *data;
    if (!source->constant->data)
        op_refuse(b, node, "the weight %%%s has no data", source->name);
    ir_value *value =
        op_build_constant(b, source->graph, source->name, GQAC_F32, 2, (int64_t[]){k, n}, &data);
    if (value)
        unpack(source->constant->data, k, n, data);
    return value;
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    ir_value *x = ir_node_input(node, X), *bias = ir_node_input(node, BIAS);
    (void)options;
    ir_value *y = OP_BUILD(b, "MatMul", .in = {op_build_rounded(b, x), unpacked(b, node)});
    if (bias)
        y = OP_BUILD(b, "Add", .in = {y, op_build_cast(b, bias, GQAC_F32)});
    results[0] = op_build_cast(b, y, op_in_type(node, X).dtype);
}

const gqac_op gqac_op_linear_bf16 = {
    .schema = {.name = "linear_bf16",
               .domain = "gqac",
               .since = 1,
               .inputs = "x w bias?",
               .outputs = "y",
               .attrs = linear_attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "y [..,N] = x [..,K] w + bias in products of bf16 factors, w constant in "
                      "panels [ceil(N/64),ceil(K/2),128] of pairs"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .standard = op_expand_standard,
};
