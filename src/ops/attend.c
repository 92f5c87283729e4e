/* attend: y = softmax(scale * q k^T ...) v, where operands give the range of keys of each query.
 *   q [B,Hq,S,D], k [B,Hkv,T,D], v [B,Hkv,T,Dv], lo, hi i32 [B,S] -> y [B,S,Hq*Dv]; query head h
 * reads key/value head h / G; query s attends to the keys lo <= j < hi, others are never read.
 * Order: scale, softcap, mask (bool selects, float is added), range, softmax (the sink joins
 * maximum and denominator). qk [B,Hq,S,T] fp32 is one stage of this order; before the mask it holds
 * every key, visible or not. new_len [n] says how many packed rows of q belong to each sequence
 * (attention.h); k and v then have a batch row for each sequence. A composite: without a kernel it
 * becomes the chain of ops that `expand` builds. Scales and zero points round q k^T, before it is
 * scaled, and the probabilities to codes, as a file does that quantises every product. */
#include "ops/attention.h"
#include "ops/build.h"

enum { Q, K, V, LO, HI, MASK, SINK, NEW_LEN, N_ROWS, SCORE_SCALE = N_ROWS, WEIGHT_SCALE = 10 };
enum { RAW, CAPPED, MASKED, PROBABILITIES };

static const ir_attr_spec attrs[] = {
    ATTENTION_SCORE_ATTRS,
    OP_ATTR_INT("qk_stage", 0,
                "what qk holds: 0 scores, 1 after softcap, 2 after the mask, 3 probabilities"),
    OP_ATTR_INT("every", 0,
                "1: the mask has a column for every key; 0: keys beyond its columns are masked"),
    ATTENTION_BF16_ATTR,
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "bf16", 0, 1, diag));
    GQAC_TRY(op_check_float(node, "scale", true, diag));
    GQAC_TRY(op_check_float(node, "softcap", false, diag));
    if (ir_node_input(node, SCORE_SCALE) && !ir_attr_is_set(node, "scale"))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "scores that are rounded need the attribute scale");
    return op_check_int(node, "qk_stage", RAW, PROBABILITIES, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    for (int i = 0; i < 3; i++)
        GQAC_TRY(attention_same_dim(node, op_in_dim(node, V, i), op_in_dim(node, K, i),
                                    "shape of the values", diag));
    return attention_infer(node, diag);
}

/* x rounded to the codes of the scale at that operand, and of the zero point after it. */
static ir_value *rounded(ir_builder *b, const ir_node *node, ir_value *x, int at) {
    ir_value *scale = ir_node_input(node, at), *zero = ir_node_input(node, at + 1);
    if (!scale)
        return x;
    ir_value *codes = OP_BUILD(b, "QuantizeLinear", .in = {x, scale, zero});
    return OP_BUILD(b, "DequantizeLinear", .in = {codes, scale, zero});
}

static ir_value *scores(ir_builder *b, const ir_node *node, ir_value *q, ir_value *lo,
                        ir_value *hi) {
    ir_value *k = ir_node_input(node, K);
    if (!ir_node_input(node, SCORE_SCALE))
        return OP_BUILD(b, "attention_scores", .in = {q, k, lo, hi}, .of = node, .same = {"scale"});
    ir_value *s = OP_BUILD(b, "attention_scores", .in = {q, k, lo, hi}, .floats = {{"scale", 1}});
    s = rounded(b, node, s, SCORE_SCALE);
    return OP_BUILD(b, "Mul", .in = {s, ir_build_f32(b, ir_attr_float(node, "scale"))});
}

static ir_value *capped(ir_builder *b, const ir_node *node, ir_value *s) {
    const float cap = ir_attr_float(node, "softcap");
    return cap == 0 ? s : OP_BUILD(b, "softcap", .in = {s}, .floats = {{"cap", cap}});
}

/* The stages before the mask, for all keys. */
static ir_value *unmasked(ir_builder *b, const ir_node *node) {
    ir_value *q = ir_node_input(node, Q), *lo, *hi;
    OP_BUILD(b, "key_range", .in = {q, ir_node_input(node, K)}, .out = {&lo, &hi});
    ir_value *s = scores(b, node, q, lo, hi);
    return ir_attr_int(node, "qk_stage") == CAPPED ? capped(b, node, s) : s;
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    int64_t stage = ir_attr_int(node, "qk_stage");
    ir_value *in[N_ROWS], *masked;
    for (int i = 0; i < N_ROWS; i++)
        in[i] = ir_node_input(node, i);
    ir_value *queries = in[Q];
    in[Q] = attention_unpack(b, in[Q], in[NEW_LEN], 2);
    in[LO] = attention_unpack(b, in[LO], in[NEW_LEN], 1);
    in[HI] = attention_unpack(b, in[HI], in[NEW_LEN], 1);
    if (in[MASK] && in[MASK]->type.rank == 4)
        in[MASK] = attention_unpack(b, in[MASK], in[NEW_LEN], 2);
    ir_value *s = capped(b, node, scores(b, node, in[Q], in[LO], in[HI]));
    if (in[MASK])
        s = OP_BUILD(b, "mask_scores", .in = {s, in[MASK]}, .of = node, .same = {"every"});
    masked = OP_BUILD(b, "causal_mask", .in = {s, in[LO], in[HI]});
    s = OP_BUILD(b, "softmax_sink", .in = {masked, in[SINK]});
    ir_value *weights = rounded(b, node, s, WEIGHT_SCALE);
    ir_value *y = OP_BUILD(b, "weigh", .in = {weights, in[V], in[LO], in[HI]});
    results[0] = attention_pack(b, y, in[NEW_LEN], queries);
    if (ir_node_output(node, 1))
        results[1] = stage == PROBABILITIES ? s : stage == MASKED ? masked : unmasked(b, node);
}

const gqac_op gqac_op_attend = {
    .schema = {.name = "attend",
               .domain = "gqac",
               .since = 1,
               .inputs = "q k v lo hi mask? sink? new_len? score_scale? score_zero? weight_scale? "
                         "weight_zero?",
               .outputs = "y qk?",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "attention of q [B,Hq,S,D] over the rows lo <= j < hi of k, v [B,Hkv,T,D]"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .make_bf16 = attention_make_bf16,
};
