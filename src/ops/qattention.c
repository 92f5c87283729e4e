/* com.microsoft.QAttention: Attention whose projection multiplies codes.
 *   input [B,S,M] in 8 bits, weight [M,3*N*D] in 8 bits, bias [3*N*D], past [2,B,N,P,D]
 *   -> output [B,S,N*D], present [2,B,N,P+S,D]
 * The projection becomes MatMulIntegerToFloat; the rest is that of Attention. Always lowered. This
 * is what ONNX Runtime's quantize_dynamic makes of Attention. Source: ONNX Runtime contrib
 * operators. */
#include "ops/build.h"
#include "ops/multi_head.h"

enum { INPUT, WEIGHT, BIAS, INPUT_SCALE, WEIGHT_SCALE, MASK, INPUT_ZERO, WEIGHT_ZERO, PAST };

static const ir_attr_spec attrs[] = {
    {"num_heads", IR_ATTR_INT, .required = true, .doc = "heads N"},
    OP_ATTR_INT("unidirectional", 0, "1: a query sees no key after its own position"),
    OP_ATTR_FLOAT("mask_filter_value", -10000, "added to the scores of padding"),
    OP_ATTR_FLOAT("scale", 0, "factor of the scores; 0: 1/sqrt(D)"),
    OP_ATTR_INT("do_rotary", 0, "only 0"),
    OP_ATTR_INT("past_present_share_buffer", 0, "only 0"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(multi_head_verify(node, diag));
    return multi_head_verify_zero(
        node, (const char *const[]){"do_rotary", "past_present_share_buffer"}, 2, diag);
}

/* Columns of queries, of keys or of values, and D; NULL when not known. */
static const ir_dim *width(const ir_node *node) {
    const ir_dim *all = op_in_dim(node, WEIGHT, 1);
    return all ? ir_dim_div_exact(op_dims(node), all, ir_dim_const(op_dims(node), 3)) : NULL;
}

static const ir_dim *head_size(const ir_node *node) {
    const ir_dim *heads = ir_dim_const(op_dims(node), ir_attr_int(node, "num_heads"));
    return width(node) ? ir_dim_div_exact(op_dims(node), width(node), heads) : NULL;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    int64_t columns;
    const int64_t heads = ir_attr_int(node, "num_heads");
    GQAC_TRY(attention_want_rank(node, INPUT, 3, diag));
    GQAC_TRY(attention_want_rank(node, WEIGHT, 2, diag));
    GQAC_TRY(attention_want_rank(node, BIAS, 1, diag));
    GQAC_TRY(attention_want_rank(node, PAST, 5, diag));
    GQAC_TRY(op_check_dtype(node, INPUT_SCALE, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, INPUT_SCALE, WEIGHT_SCALE, diag));
    GQAC_TRY(op_check_same(node, INPUT_SCALE, BIAS, diag));
    GQAC_TRY(op_check_same(node, INPUT_SCALE, PAST, diag));
    GQAC_TRY(attention_want_dtype(node, MASK, GQAC_I32, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, INPUT, 2), op_in_dim(node, WEIGHT, 0),
                                "columns of the input", diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, PAST, 0), ir_dim_const(op_dims(node), 2),
                                "first dimension of past", diag));
    if (ir_dim_is_const(op_in_dim(node, WEIGHT, 1), &columns) && columns % (3 * heads) != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "weights of %lld columns for queries, keys and values of %lld heads",
                (long long)columns, (long long)heads);
    return multi_head_set_types(node, op_in_type(node, INPUT_SCALE).dtype, PAST, width(node),
                                head_size(node), diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    static const int operands[] = {INPUT,      WEIGHT,      INPUT_SCALE, WEIGHT_SCALE,
                                   INPUT_ZERO, WEIGHT_ZERO, BIAS};
    enum { COUNT = sizeof operands / sizeof *operands };
    ir_value *in[COUNT], *parts[3];
    int64_t columns = 0;
    (void)options;
    for (int i = 0; i < COUNT; i++)
        in[i] = ir_node_input(node, operands[i]);
    if (!ir_dim_is_const(width(node), &columns))
        op_refuse(b, node, "the number of columns of the weights is not constant");
    ir_value *x = OP_BUILD(b, "com.microsoft.MatMulIntegerToFloat", .list = {COUNT, in});
    multi_head_parts(b, x, (const int64_t[]){columns, columns, columns}, parts);
    multi_head m = {.padding = ir_node_input(node, MASK),
                    .scale = attention_scores_scale(node, head_size(node))};
    multi_head_build_parts(b, node, parts, ir_node_input(node, PAST), &m, results);
}

static bool mixes(const ir_node *node) {
    return multi_head_mixes(node, PAST);
}

const gqac_op gqac_op_qattention = {
    .schema = {.name = "QAttention",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "input weight bias input_scale weight_scale mask_index? "
                         "input_zero_point? weight_zero_point? past?",
               .outputs = "output present?",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_STATE,
               .doc = "Attention with a projection of codes in 8 bits"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .mixes = mixes,
};
