/* attend: y = softmax(scale * q k^T ...) v over given ranges of keys.
 *   q [B,Hq,S,D], k [B,Hkv,T,D], v [B,Hkv,T,Dv], lo, hi i32 [B,S] -> y [B,S,Hq*Dv]; query head h
 * reads key/value head h / G; query s sees the keys lo <= j < hi, others are never read. Order:
 * scale, softcap, mask (bool selects, float is added), range, softmax (the sink joins maximum and
 * denominator). qk [B,Hq,S,T] fp32 shows one stage of it; the stages before the mask show every
 * key, visible or not. new_len [n] tells whose rows packed queries are (attention.h): k and v have
 * a batch row for each of those sequences then.
 * A composite: what no kernel claims becomes the chain of ops built below. */
#include "ops/attention.h"
#include "ops/build.h"

#include <math.h>

enum { Q, K, V, LO, HI, MASK, SINK, NEW_LEN, N_INPUTS };
enum { RAW, CAPPED, MASKED, PROBABILITIES };

static const ir_attr_spec attrs[] = {
    {"scale", IR_ATTR_FLOAT, .required = true, .doc = "factor of the scores"},
    OP_ATTR_FLOAT("softcap", 0, "s becomes softcap * tanh(s / softcap); 0: off"),
    OP_ATTR_INT("qk_stage", 0,
                "what qk shows: 0 scores, 1 after softcap, 2 after the mask, 3 probabilities"),
    OP_ATTR_INT("every", 0,
                "1: the mask has a column for every key; 0: keys beyond its columns are masked"),
    OP_ATTR_INT("bf16", 0, "1: a kernel may take bf16 factors for q k^T and p v"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    float cap = ir_attr_float(node, "softcap");
    int64_t stage = ir_attr_int(node, "qk_stage");
    const int64_t bf16 = ir_attr_int(node, "bf16");
    if (bf16 != 0 && bf16 != 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute bf16 = %lld: 0 or 1", (long long)bf16);
    if (!isfinite(ir_attr_float(node, "scale")))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "scale is not finite");
    if (!(cap >= 0) || !isfinite(cap))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "softcap = %g: 0 or a positive number",
                (double)cap);
    if (stage < RAW || stage > PROBABILITIES)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "qk_stage = %lld: 0 to 3", (long long)stage);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    for (int i = Q; i <= V; i++)
        GQAC_TRY(attention_want_rank(node, i, 4, diag));
    GQAC_TRY(op_check_same(node, Q, K, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, Q, 3), op_in_dim(node, K, 3),
                                "head size of the keys", diag));
    for (int i = 0; i < 3; i++)
        GQAC_TRY(attention_same_dim(node, op_in_dim(node, V, i), op_in_dim(node, K, i),
                                    "shape of the values", diag));
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

static ir_value *scores(ir_builder *b, const ir_node *node, ir_value *q, ir_value *lo,
                        ir_value *hi) {
    return OP_BUILD(b, "attention_scores", .in = {q, ir_node_input(node, K), lo, hi}, .of = node,
                    .same = {"scale"});
}

static ir_value *capped(ir_builder *b, const ir_node *node, ir_value *s) {
    const float cap = ir_attr_float(node, "softcap");
    return cap == 0 ? s : OP_BUILD(b, "softcap", .in = {s}, .floats = {{"cap", cap}});
}

/* Stages before the mask, of all keys. */
static ir_value *unmasked(ir_builder *b, const ir_node *node) {
    ir_value *q = ir_node_input(node, Q), *lo, *hi;
    OP_BUILD(b, "key_range", .in = {q, ir_node_input(node, K)}, .out = {&lo, &hi});
    ir_value *s = scores(b, node, q, lo, hi);
    return ir_attr_int(node, "qk_stage") == CAPPED ? capped(b, node, s) : s;
}

static void make_bf16(ir_node *node) {
    ir_attr_set_int(node, "bf16", 1);
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
    .make_bf16 = make_bf16,
};
