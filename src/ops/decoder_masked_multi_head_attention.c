/* com.microsoft.DecoderMaskedMultiHeadAttention: MultiHeadAttention of one new token, with its
 * inputs in another order. With past_present_share_buffer the past is a buffer [B,N,M,D] of which
 * past_sequence_length rows are valid; 4-D key and value are those of cross attention. Lowered to
 * MultiHeadAttention. Beam search (cache_indirection) is not supported. */
#include "ops/build.h"
#include "ops/multi_head.h"

enum {
    QUERY,
    KEY,
    VALUE,
    MASK,
    ATTENTION_BIAS,
    PAST_KEY,
    PAST_VALUE,
    PAST_LENGTH,
    BEAM_WIDTH,
    CACHE_INDIRECTION,
    BIAS
};

static const ir_attr_spec attrs[] = {
    {"num_heads", IR_ATTR_INT, .required = true, .doc = "heads N"},
    OP_ATTR_INT("past_present_share_buffer", 0, "1: past is a buffer, see past_sequence_length"),
    OP_ATTR_FLOAT("scale", 0, "factor of the scores; 0: 1/sqrt(D)"),
    OP_ATTR_FLOAT("mask_filter_value", -10000, "added to the scores of padding"),
    OP_ATTR_INT("output_qk", 0, "not needed: qk is computed whenever it is an output"),
    {.name = NULL},
};

static bool has(const ir_node *node, int input) {
    return ir_node_input(node, input) != NULL;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    bool shared = ir_attr_int(node, "past_present_share_buffer") == 1;
    GQAC_TRY(op_check_int(node, "num_heads", 1, INT32_MAX, diag));
    if (has(node, BEAM_WIDTH) || has(node, CACHE_INDIRECTION))
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "inputs beam_width and cache_indirection (beam search) are not supported");
    if (shared && has(node, PAST_KEY) && !has(node, PAST_LENGTH))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "past_present_share_buffer = 1 needs past_sequence_length");
    return GQAC_OK;
}

static bool is_shared(const ir_node *node) {
    return has(node, PAST_KEY) && ir_attr_int(node, "past_present_share_buffer") == 1;
}

/* Columns of the output: those of value, or of its heads. */
static const ir_dim *width_of(const ir_node *node) {
    const ir_dim *heads = ir_dim_const(op_dims(node), ir_attr_int(node, "num_heads"));
    int rank = op_in_type(node, VALUE).rank;
    return rank == 3   ? op_in_dim(node, VALUE, 2)
           : rank == 4 ? ir_dim_mul(op_dims(node), heads, op_in_dim(node, VALUE, 3))
                       : NULL;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_dims *dims = op_dims(node);
    int64_t rows;
    if (ir_dim_is_const(op_in_dim(node, QUERY, 1), &rows) && rows != 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the call has %lld new tokens: must be 1",
                (long long)rows);
    GQAC_TRY(op_check_dtype(node, QUERY, OP_FLOATS, diag));
    const ir_dim *present[4] = {op_in_dim(node, QUERY, 0),
                                ir_dim_const(dims, ir_attr_int(node, "num_heads")), NULL,
                                op_in_dim(node, PAST_KEY, 3)};
    const ir_dim *past = op_in_dim(node, PAST_KEY, 2);
    if (has(node, PAST_KEY))
        present[2] = is_shared(node) ? past : ir_dim_add(dims, past, ir_dim_const(dims, 1));
    const ir_dim *out[3] = {present[0], op_in_dim(node, QUERY, 1), width_of(node)};
    const ir_dim *qk[4] = {present[0], present[1], out[1], NULL};
    gqac_dtype dtype = op_in_type(node, QUERY).dtype;
    GQAC_TRY(op_set_type(node, 0, dtype, 3, out, diag));
    GQAC_TRY(op_set_type(node, 1, dtype, 4, present, diag));
    present[3] = op_in_dim(node, PAST_VALUE, 3);
    GQAC_TRY(op_set_type(node, 2, dtype, 4, present, diag));
    return op_set_type(node, 3, dtype, 4, qk, diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    ir_value *in[BIAS + 1], *made[4];
    for (int i = 0; i <= BIAS; i++)
        in[i] = ir_node_input(node, i);
    OP_BUILD(b, "com.microsoft.MultiHeadAttention",
             .in = {in[QUERY], in[KEY], in[VALUE], in[BIAS], in[MASK], in[ATTENTION_BIAS],
                    in[PAST_KEY], in[PAST_VALUE], is_shared(node) ? in[PAST_LENGTH] : NULL},
             .of = node, .same = {"num_heads", "scale", "mask_filter_value"},
             .ints = {{"unidirectional", op_in_type(node, KEY).rank != 4}},
             .out = {&made[0], &made[1], &made[2], &made[3]});
    for (int i = 0; i < 4 && i < node->n_outputs; i++)
        results[i] = made[i];
}

const gqac_op gqac_op_decoder_masked_multi_head_attention = {
    .schema = {.name = "DecoderMaskedMultiHeadAttention",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "query key? value? mask_index? attention_bias? past_key? past_value? "
                         "past_sequence_length? beam_width? cache_indirection? bias?",
               .outputs = "output present_key? present_value? qk?",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_STATE,
               .doc = "MultiHeadAttention of one new token, the past in a buffer or grown"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
};
