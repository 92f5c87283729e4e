/* attend: y = softmax(scale * q k^T ...) v, where operands give the range of keys of each query.
 *   q [B,Hq,S,D], k [B,Hkv,T,D], v [B,Hkv,T,Dv], lo, hi i32 [B,S] -> y [B,S,Hq*Dv]; query head h
 * reads key/value head h / G; query s attends to the keys lo <= j < hi, others are never read.
 * Order: scale, softcap, mask (bool selects, float is added), range, softmax (the sink joins
 * maximum and denominator). qk [B,Hq,S,T] fp32 is one stage of this order; before the mask it holds
 * every key, visible or not. new_len [n] says how many packed rows of q belong to each sequence
 * (attention.h); k and v then have a batch row for each sequence. A composite: without a kernel it
 * becomes the chain of ops that `expand` builds. */
#include "ops/attention.h"
#include "ops/build.h"

enum { Q, K, V, LO, HI, MASK, SINK, NEW_LEN, N_INPUTS };
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
    return op_check_int(node, "qk_stage", RAW, PROBABILITIES, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    for (int i = 0; i < 3; i++)
        GQAC_TRY(attention_same_dim(node, op_in_dim(node, V, i), op_in_dim(node, K, i),
                                    "shape of the values", diag));
    return attention_infer(node, diag);
}

static ir_value *scores(ir_builder *b, const ir_node *node, ir_value *q, ir_value *lo,
                        ir_value *hi) {
    return OP_BUILD(b, "attention_scores", .in = {q, ir_node_input(node, K), lo, hi}, .of = node,
                    .same = {"scale"});
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
    ir_value *in[N_INPUTS], *masked;
    for (int i = 0; i < N_INPUTS; i++)
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
    ir_value *y = OP_BUILD(b, "weigh", .in = {s, in[V], in[LO], in[HI]});
    results[0] = attention_pack(b, y, in[NEW_LEN], queries);
    if (ir_node_output(node, 1))
        results[1] = stage == PROBABILITIES ? s : stage == MASKED ? masked : unmasked(b, node);
}

const gqac_op gqac_op_attend = {
    .schema = {.name = "attend",
               .domain = "gqac",
               .since = 1,
               .inputs = "q k v lo hi mask? sink? new_len?",
               .outputs = "y qk?",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "attention of q [B,Hq,S,D] over the rows lo <= j < hi of k, v [B,Hkv,T,D]"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .make_bf16 = attention_make_bf16,
};
