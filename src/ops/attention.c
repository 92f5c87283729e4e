/* attention: y = softmax(scale * q k^T ...) v over the visible keys of each query.
 *   q [B,Hq,S,D], k [B,Hkv,T,D], v [B,Hkv,T,Dv] -> y [B,S,Hq*Dv]; query head h reads key/value head
 *   h / G. Order: scale, softcap, bias, mask, softmax (the sink joins its maximum and denominator).
 * Query s of batch row b sees the keys lo <= j < hi, hi = p_b + s + 1 when causal, else p_b + n_b;
 * lo = max(0, p_b + s + 1 - window) with a window. Rows s >= n_b see nothing and give zeros.
 * qk [B,Hq,S,T] fp32 shows the scores before the softmax or the probabilities, 0 for other keys.
 * Rows of q, y and the bias may be packed (attention.h); k and v have a batch row a sequence then.
 * A composite: what no kernel claims becomes the chain of ops built below. */
#include "ops/attention.h"
#include "ops/build.h"

#include <math.h>

enum { Q, K, V, PAST_LEN, NEW_LEN, BIAS, SINK };

static const ir_attr_spec attrs[] = {
    {"scale", IR_ATTR_FLOAT, .required = true, .doc = "factor of the scores"},
    OP_ATTR_FLOAT("softcap", 0, "s becomes softcap * tanh(s / softcap); 0: off"),
    OP_ATTR_INT("causal", 1, "0: later keys are visible"),
    OP_ATTR_INT("window", -1, "keys a query sees, itself included; -1: all"),
    OP_ATTR_INT("qk_stage", 1, "what qk shows: 1 scores with softcap and bias, 2 probabilities"),
    OP_ATTR_INT("bf16", 0, "1: a kernel may take bf16 factors for q k^T and p v"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    float cap = ir_attr_float(node, "softcap");
    int64_t causal = ir_attr_int(node, "causal"), window = ir_attr_int(node, "window");
    int64_t stage = ir_attr_int(node, "qk_stage");
    if (stage != 1 && stage != 2)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "qk_stage = %lld: 1 or 2", (long long)stage);
    const int64_t bf16 = ir_attr_int(node, "bf16");
    if (bf16 != 0 && bf16 != 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute bf16 = %lld: 0 or 1", (long long)bf16);
    if (!isfinite(ir_attr_float(node, "scale")))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "scale is not finite");
    if (!(cap >= 0) || !isfinite(cap))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "softcap = %g: 0 or a positive number",
                (double)cap);
    if (causal != 0 && causal != 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "causal = %lld: 0 or 1", (long long)causal);
    if (window < -1 || window == 0 || (window > 0 && !causal))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "window = %lld: -1, or at least 1 and then causal",
                (long long)window);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    for (int i = Q; i <= V; i++)
        GQAC_TRY(attention_want_rank(node, i, 4, diag));
    GQAC_TRY(op_check_same(node, Q, K, diag));
    GQAC_TRY(op_check_same(node, K, V, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, Q, 3), op_in_dim(node, K, 3),
                                "head size of the keys", diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, K, 1), op_in_dim(node, V, 1),
                                "heads of the values", diag));
    int64_t q_heads, kv_heads;
    if (ir_dim_is_const(op_in_dim(node, Q, 1), &q_heads) &&
        ir_dim_is_const(op_in_dim(node, K, 1), &kv_heads) &&
        (kv_heads < 1 || q_heads % kv_heads != 0))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld query heads over %lld key/value heads",
                (long long)q_heads, (long long)kv_heads);
    const ir_dim *dims[3] = {
        op_in_dim(node, Q, 0), op_in_dim(node, Q, 2),
        ir_dim_mul(op_dims(node), op_in_dim(node, Q, 1), op_in_dim(node, V, 3))};
    const ir_dim *qk[4] = {op_in_dim(node, Q, 0), op_in_dim(node, Q, 1), op_in_dim(node, Q, 2),
                           op_in_dim(node, K, 2)};
    GQAC_TRY(op_set_type(node, 0, op_in_type(node, V).dtype, 3, dims, diag));
    return op_set_type(node, 1, GQAC_F32, 4, qk, diag);
}

static bool mixes(const ir_node *node) {
    return !ir_attr_int(node, "causal");
}

static void make_bf16(ir_node *node) {
    ir_attr_set_int(node, "bf16", 1);
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
    .make_bf16 = make_bf16,
    .mixes = mixes,
};
