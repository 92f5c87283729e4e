/* Attention of a statically quantised file, which rounds the product of queries and keys, before it
 * is scaled, and the probabilities to 8-bit codes.
 *   q [B,Hq,S,D], k [B,Hkv,S,D], v [B,Hkv,S,Dv], past [B,Hkv,P,D] -> y [B,S,Hq*Dv],
 *   present [B,Hkv,P+S,D]
 * A scale and the zero point after it are those of QuantizeLinear and DequantizeLinear; without the
 * scale nothing is rounded. Queries, keys and values are rounded outside. Always lowered, to
 * attend. */
#include "ops/attention.h"
#include "ops/build.h"

enum { Q, K, V, PAST_KEY, PAST_VALUE, MASK, SCORE_SCALE, SCORE_ZERO, WEIGHT_SCALE, WEIGHT_ZERO };

static const ir_attr_spec attrs[] = {
    {"scale", IR_ATTR_FLOAT, .required = true, .doc = "factor of the rounded scores"},
    OP_ATTR_FLOAT("softcap", 0, "s becomes softcap * tanh(s / softcap); 0: off"),
    ATTENTION_VISIBLE_ATTRS,
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_float(node, "scale", true, diag));
    GQAC_TRY(op_check_float(node, "softcap", false, diag));
    return attention_visible_verify(node, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_infer(node, diag));
    for (int i = 0; i < 2; i++) {
        GQAC_TRY(attention_want_rank(node, PAST_KEY + i, 4, diag));
        GQAC_TRY(op_check_same(node, PAST_KEY + i, K + i, diag));
        const ir_dim *dims[4];
        for (int axis = 0; axis < 4; axis++)
            dims[axis] = op_in_dim(node, K + i, axis);
        dims[2] = ir_dim_add(op_dims(node), dims[2], op_in_dim(node, PAST_KEY + i, 2));
        GQAC_TRY(op_set_type(node, 1 + i, op_in_type(node, K + i).dtype, 4, dims, diag));
    }
    return GQAC_OK;
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    const int64_t window = ir_attr_int(node, "window");
    ir_value *in[WEIGHT_ZERO + 1], *lo, *hi;
    for (int i = 0; i <= WEIGHT_ZERO; i++)
        in[i] = ir_node_input(node, i);
    ir_value *k = attention_with_past(b, in[PAST_KEY], in[K]);
    ir_value *v = attention_with_past(b, in[PAST_VALUE], in[V]);
    OP_BUILD(b, "key_range", .in = {in[Q], k, in[PAST_KEY]}, .out = {&lo, &hi},
             .ints = {{"left", window > 0 ? window - 1 : -1},
                      {"right", ir_attr_int(node, "causal") ? 0 : -1}});
    results[0] = OP_BUILD(b, "attend",
                          .in = {in[Q], k, v, lo, hi, in[MASK], NULL, NULL, in[SCORE_SCALE],
                                 in[SCORE_ZERO], in[WEIGHT_SCALE], in[WEIGHT_ZERO]},
                          .of = node, .same = {"scale", "softcap"});
    if (node->n_outputs > 1)
        results[1] = k;
    if (node->n_outputs > 2)
        results[2] = v;
}

const gqac_op gqac_op_rounded_attention = {
    .schema = {.name = "rounded_attention",
               .domain = "gqac",
               .since = 1,
               .inputs = "q k v past_key past_value mask? score_scale? score_zero? weight_scale? "
                         "weight_zero?",
               .outputs = "y present_key? present_value?",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_STATE,
               .doc = "attention with a past, whose scores and probabilities are rounded to codes"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .mixes = attention_visible_mixes,
};
