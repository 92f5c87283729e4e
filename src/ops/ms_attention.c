/* com.microsoft.Attention: projection and attention in one node.
 *   input [B,S,M], weights [M,Dq+Dk+Dv], bias [Dq+Dk+Dv], past [2,B,N,P,D] (keys, then values)
 *   -> output [B,S,Dv], present [2,B,N,P+S,D]
 * mask_index is a padding mask (see padding_bias). Always lowered. */
#include "ops/build.h"
#include "ops/multi_head.h"

enum { INPUT, WEIGHTS, BIAS, MASK, PAST, ATTENTION_BIAS, PAST_LENGTH };

static const ir_attr_spec attrs[] = {
    {"num_heads", IR_ATTR_INT, .required = true, .doc = "heads N"},
    OP_ATTR_INT("unidirectional", 0, "1: a query sees no key after its own position"),
    {"qkv_hidden_sizes", IR_ATTR_INTS, .doc = "Dq, Dk, Dv; absent: a third of the columns each"},
    OP_ATTR_FLOAT("mask_filter_value", -10000, "added to the scores of padding"),
    OP_ATTR_FLOAT("scale", 0, "factor of the scores; 0: 1/sqrt(D)"),
    OP_ATTR_INT("do_rotary", 0, "only 0"),
    OP_ATTR_INT("rotary_embedding_dim", 0, "ignored"),
    OP_ATTR_INT("past_present_share_buffer", 0, "only 0"),
    {.name = NULL},
};

static gqac_status check_sizes(const ir_node *node, gqac_diag *diag) {
    const ir_attr *sizes = ir_attr_get(node, "qkv_hidden_sizes");
    int64_t heads = ir_attr_int(node, "num_heads");
    if (!sizes->set || sizes->count == 0)
        return GQAC_OK;
    bool good = sizes->count == 3 && sizes->ints[0] == sizes->ints[1];
    for (size_t i = 0; i < 3 && good; i++)
        good = sizes->ints[i] > 0 && sizes->ints[i] <= INT32_MAX && sizes->ints[i] % heads == 0;
    if (!good)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute qkv_hidden_sizes must be three multiples of num_heads = %lld, of which "
                "the first two are equal",
                (long long)heads);
    return GQAC_OK;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    static const char *const unsupported[] = {"do_rotary", "past_present_share_buffer"};
    GQAC_TRY(multi_head_verify(node, diag));
    GQAC_TRY(multi_head_verify_zero(node, unsupported, 2, diag));
    if (ir_node_input(node, PAST_LENGTH))
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "input past_sequence_length is not supported");
    return check_sizes(node, diag);
}

/* Columns of queries, keys or values; NULL when not known. */
static const ir_dim *width_of(const ir_node *node, int part) {
    const ir_attr *sizes = ir_attr_get(node, "qkv_hidden_sizes");
    ir_dims *dims = op_dims(node);
    const ir_dim *all = op_in_dim(node, WEIGHTS, 1);
    if (sizes->set && sizes->count == 3)
        return ir_dim_const(dims, sizes->ints[part]);
    return all ? ir_dim_div_exact(dims, all, ir_dim_const(dims, 3)) : NULL;
}

static const ir_dim *head_size(const ir_node *node, int part) {
    const ir_dim *width = width_of(node, part);
    const ir_dim *heads = ir_dim_const(op_dims(node), ir_attr_int(node, "num_heads"));
    return width ? ir_dim_div_exact(op_dims(node), width, heads) : NULL;
}

static gqac_status check_types(const ir_node *node, gqac_diag *diag) {
    static const struct {
        int input, rank;
    } floats[] = {{WEIGHTS, 2}, {BIAS, 1}, {PAST, 5}, {ATTENTION_BIAS, 4}};
    GQAC_TRY(op_check_dtype(node, INPUT, OP_FLOATS, diag));
    GQAC_TRY(attention_want_rank(node, INPUT, 3, diag));
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        GQAC_TRY(op_check_same(node, floats[i].input, INPUT, diag));
        GQAC_TRY(attention_want_rank(node, floats[i].input, floats[i].rank, diag));
    }
    return attention_want_dtype(node, MASK, GQAC_I32, diag);
}

static gqac_status check_columns(const ir_node *node, gqac_diag *diag) {
    int64_t columns, width[3], heads = ir_attr_int(node, "num_heads");
    if (!ir_dim_is_const(op_in_dim(node, WEIGHTS, 1), &columns))
        return GQAC_OK;
    int64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        if (!ir_dim_is_const(width_of(node, i), &width[i]))
            width[i] = 0;
        sum += width[i];
    }
    if (width[2] != width[0] && (ir_node_input(node, PAST) || ir_node_output(node, 1)))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "past and present need keys and values of the same width, here %lld and %lld "
                "columns",
                (long long)width[0], (long long)width[2]);
    if (sum != columns || width[0] % heads != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "weights of %lld columns for queries, keys and values of %lld heads",
                (long long)columns, (long long)heads);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_dims *dims = op_dims(node);
    GQAC_TRY(check_types(node, diag));
    GQAC_TRY(check_columns(node, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, INPUT, 2), op_in_dim(node, WEIGHTS, 0),
                                "columns of the input", diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, PAST, 0), ir_dim_const(dims, 2),
                                "first dimension of past", diag));
    return multi_head_set_types(node, op_in_type(node, INPUT).dtype, PAST, width_of(node, 2),
                                head_size(node, 0), diag);
}

/* ---- expand -------------------------------------------------------------- */

/* q, k, v [B,S,N*D] of the projected input. */
static void project(ir_builder *b, const ir_node *node, ir_value *parts[3]) {
    int64_t widths[3] = {0};
    for (int i = 0; i < 3; i++)
        if (!ir_dim_is_const(width_of(node, i), &widths[i]))
            op_refuse(b, node, "the number of columns of the weights is not constant");
    ir_value *x =
        OP_BUILD(b, "MatMul", .in = {ir_node_input(node, INPUT), ir_node_input(node, WEIGHTS)});
    if (ir_node_input(node, BIAS))
        x = OP_BUILD(b, "Add", .in = {x, ir_node_input(node, BIAS)});
    multi_head_parts(b, x, widths, parts);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    ir_value *parts[3];
    project(b, node, parts);
    multi_head m = {.padding = ir_node_input(node, MASK),
                    .bias = ir_node_input(node, ATTENTION_BIAS),
                    .scale = attention_scores_scale(node, head_size(node, 0))};
    multi_head_build_parts(b, node, parts, ir_node_input(node, PAST), &m, results);
}

static void take_apart(ir_builder *b, const ir_node *node, ir_value *positions,
                       const op_options *options, op_parts *parts) {
    ir_value *x[3];
    (void)positions, (void)options;
    project(b, node, x);
    for (int i = 0; i < 3; i++)
        x[i] = attention_heads(b, node, x[i], ir_attr_int(node, "num_heads"), head_size(node, i));
    *parts = (op_parts){.q = x[0],
                        .k = x[1],
                        .v = x[2],
                        .scale = attention_scale(b, node, head_size(node, 0)),
                        .causal = ir_attr_int(node, "unidirectional") == 1,
                        .window = -1};
}

static bool mixes(const ir_node *node) {
    return multi_head_mixes(node, PAST);
}

const gqac_op gqac_op_ms_attention = {
    .schema = {.name = "Attention",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "input weights bias? mask_index? past? attention_bias? "
                         "past_sequence_length?",
               .outputs = "output present?",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_STATE,
               .doc = "projection of [B,S,M] and attention; present [2,B,N,P+S,D]"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .take_apart = take_apart,
    .mixes = mixes,
};
