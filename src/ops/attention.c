/* attention: y = softmax(scale * q k^T ...) v over the visible keys of each query.
 *   q [B,Hq,S,D], k [B,Hkv,T,D], v [B,Hkv,T,Dv] -> y [B,S,Hq*Dv]; query head h reads key/value head
 *   h / G. Order: scale, softcap, bias, mask, softmax (the sink joins its maximum and denominator).
 * Query s of batch row b attends to the keys lo <= j < hi, hi = p_b + s + 1 when causal, else p_b +
 * n_b; lo = max(0, p_b + s + 1 - window) with a window. Rows s >= n_b attend to no key and become
 * zeros. qk [B,Hq,S,T] fp32 holds the scores before the softmax, or the probabilities; 0 for other
 * keys. Rows of q, y and the bias may be packed (attention.h); k and v then have a batch row for
 * each sequence. A composite: without a kernel it becomes the chain of ops that `expand` builds. */
#include "ops/attention.h"
#include "ops/build.h"

enum { Q, K, V, PAST_LEN, NEW_LEN, BIAS, SINK };

static const ir_attr_spec attrs[] = {
    ATTENTION_SCORE_ATTRS,
    ATTENTION_VISIBLE_ATTRS,
    OP_ATTR_INT("qk_stage", 1, "what qk holds: 1 scores with softcap and bias, 2 probabilities"),
    ATTENTION_BF16_ATTR,
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "qk_stage", 1, 2, diag));
    GQAC_TRY(op_check_int(node, "bf16", 0, 1, diag));
    GQAC_TRY(op_check_float(node, "scale", true, diag));
    GQAC_TRY(op_check_float(node, "softcap", false, diag));
    return attention_visible_verify(node, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_same(node, K, V, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, K, 1), op_in_dim(node, V, 1),
                                "heads of the values", diag));
    return attention_infer(node, diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    ir_value *in[SINK + 1], *lo, *hi;
    for (int i = 0; i <= SINK; i++)
        in[i] = ir_node_input(node, i);
    ir_value *queries = in[Q], *fresh = in[NEW_LEN];
    in[Q] = attention_unpack(b, in[Q], fresh, 2);
    in[BIAS] = attention_unpack(b, in[BIAS], fresh, 2);
    OP_BUILD(b, "visible_range", .in = {in[PAST_LEN], in[NEW_LEN], in[Q]}, .of = node,
             .same = {"causal", "window"}, .out = {&lo, &hi});
    ir_value *s = OP_BUILD(b, "attention_scores", .in = {in[Q], in[K], lo, hi}, .of = node,
                           .same = {"scale"});
    if (ir_attr_float(node, "softcap") > 0)
        s = OP_BUILD(b, "softcap", .in = {s}, .floats = {{"cap", ir_attr_float(node, "softcap")}});
    if (in[BIAS])
        s = OP_BUILD(b, "add_bias", .in = {s, in[BIAS], lo, hi});
    ir_value *shown = s;
    s = OP_BUILD(b, "causal_mask", .in = {s, lo, hi});
    s = OP_BUILD(b, "softmax_sink", .in = {s, in[SINK]});
    ir_value *y = OP_BUILD(b, "weigh", .in = {s, in[V], lo, hi});
    results[0] = attention_pack(b, y, fresh, queries);
    if (ir_node_output(node, 1))
        results[1] = ir_attr_int(node, "qk_stage") == 1 ? shown : s;
}

const gqac_op gqac_op_attention = {
    .schema = {.name = "attention",
               .domain = "gqac",
               .since = 1,
               .inputs = "q k v past_len new_len bias? sink?",
               .outputs = "y qk?",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "attention of q [B,Hq,S,D] over the visible rows of k, v [B,Hkv,T,D]"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .make_bf16 = attention_make_bf16,
    .mixes = attention_visible_mixes,
};
