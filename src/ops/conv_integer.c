/* ConvInteger: the convolution of (x - x_zero_point) by (w - w_zero_point), in i32; padding is 0
 * after the subtraction. Becomes two Convs in f32, of w / 16 rounded down and of the remainder:
 * products of 8 bits by 5 are below 2^12, so sums of at most 4096 are exact. Source: ONNX operator
 * spec. */
#include "base/check.h"
#include "ops/build.h"
#include "ops/conv.h"

enum { X = CONV_X, W = CONV_W, X_ZERO, W_ZERO, MOST_TERMS = 4096 };
#define CODES (OP_BIT(I8) | OP_BIT(U8))

/* Products that are added to an element; -1: not known. */
static int64_t terms_of(const ir_node *node) {
    int64_t terms = 1, n;
    for (int i = 1; i < op_in_type(node, W).rank; i++)
        if (!ir_dim_is_const(op_in_dim(node, W, i), &n) || !gqac_mul_i64(terms, n, &terms))
            return -1;
    return op_in_type(node, W).rank < 0 ? -1 : terms;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    for (int i = X; i <= W_ZERO; i++)
        GQAC_TRY(op_check_dtype(node, i, CODES, diag));
    GQAC_TRY(op_check_same(node, X, X_ZERO, diag));
    GQAC_TRY(op_check_same(node, W, W_ZERO, diag));
    if (terms_of(node) > MOST_TERMS)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "sums of %lld products; at most %d are supported",
                (long long)terms_of(node), MOST_TERMS);
    return conv_infer(node, GQAC_I32, diag);
}

/* Operand i, less its zero point: one, or one for each feature map of w. */
static ir_value *centred(ir_builder *b, const ir_node *node, int i) {
    ir_value *x = op_build_cast(b, ir_node_input(node, i), GQAC_F32);
    ir_value *zero = ir_node_input(node, i == X ? X_ZERO : W_ZERO);
    if (!zero)
        return x;
    int64_t shape[GQAC_MAX_RANK] = {-1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t rank = i == X ? 0 : op_in_type(node, W).rank;
    zero = OP_BUILD(b, "Reshape", .in = {zero, ir_build_i64s(b, rank, shape)});
    return OP_BUILD(b, "Sub", .in = {x, op_build_cast(b, zero, GQAC_F32)});
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    if (terms_of(node) < 0) {
        op_refuse(b, node, "the shape of the weight is not constant");
        return;
    }
    ir_value *x = centred(b, node, X), *w = centred(b, node, W), *sixteen = ir_build_f32(b, 16);
    ir_value *high = OP_BUILD(b, "Floor", .in = {OP_BUILD(b, "Div", .in = {w, sixteen})});
    ir_value *shifted = OP_BUILD(b, "Mul", .in = {high, sixteen});
    ir_value *parts[] = {high, OP_BUILD(b, "Sub", .in = {w, shifted})};
    for (int i = 0; i < 2; i++) {
        parts[i] = OP_BUILD(b, "Conv", .in = {x, parts[i]}, .of = node);
        parts[i] = op_build_cast(b, parts[i], GQAC_I32);
    }
    ir_value *scale = op_build_cast(b, ir_build_i64(b, 16), GQAC_I32);
    parts[0] = OP_BUILD(b, "Mul", .in = {parts[0], scale});
    results[0] = OP_BUILD(b, "Add", .in = {parts[0], parts[1]});
}

const gqac_op gqac_op_conv_integer = {
    .schema = {.name = "ConvInteger",
               .domain = "",
               .since = 10,
               .inputs = "x w x_zero_point? w_zero_point?",
               .outputs = "y",
               .attrs = conv_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "convolution of x - x_zero_point by w - w_zero_point in i32"},
    .infer = infer,
    .verify = conv_verify,
    .expand = expand,
    .mixes = conv_mixes,
};
