/* com.microsoft.GroupQueryAttention: attention with a KV cache, rotary embedding and packed
 * projections in one node.
 *   query [B,S,Hq*D] with key, value [B,S,Hkv*D], or query alone [B,S,(Hq+2Hkv)*D]
 *   past_key, past_value [B,Hkv,P,D] -> output [B,S,Hq*D], present [B,Hkv,max(total,P),D]
 * Always lowered: the graph that `expand` builds is its definition. docs/group-query-attention.md
 * explains it with an example. */
#include "ops/build.h"
#include "ops/gqa.h"

static const ir_attr_spec attrs[] = {
    {"num_heads", IR_ATTR_INT, .required = true, .doc = "query heads Hq"},
    {"kv_num_heads", IR_ATTR_INT, .required = true, .doc = "key/value heads Hkv; divides Hq"},
    OP_ATTR_FLOAT("scale", 0, "factor of the scores; 0: 1/sqrt(D)"),
    OP_ATTR_FLOAT("softcap", 0, "s becomes softcap * tanh(s / softcap); 0: off"),
    OP_ATTR_INT("local_window_size", -1, "keys a query sees, itself included; -1: all"),
    OP_ATTR_INT("do_rotary", 0, "1: rotary embedding of queries and keys"),
    OP_ATTR_INT("rotary_interleaved", 0, "1: pairs are neighbours, 0: half a head apart"),
    OP_ATTR_INT("causal", 1, "0: later tokens are visible"),
    OP_ATTR_INT("sliding_window_cache", 0, "1: past and present hold the last keys only"),
    OP_ATTR_INT("smooth_softmax", -1, "1: a zero is added to the scores of the softmax"),
    OP_ATTR_INT("qk_output", 0, "output_qk: 1 scores, 2 probabilities"),
    OP_ATTR_STRING("k_quant_type", "NONE",
                   "NONE, PER_TENSOR or PER_CHANNEL: the cache holds codes"),
    OP_ATTR_STRING("v_quant_type", "NONE", "the same for values"),
    OP_ATTR_INT("kv_cache_bit_width", 0, "bits of a code, 8 or 4; 0: none"),
    OP_ATTR_FLOAT("qk_norm_epsilon", 1e-6f, "epsilon of the norms of queries and keys"),
    {.name = NULL},
};

/* ---- expand -------------------------------------------------------------- */

typedef struct gqa {
    ir_builder *b;
    ir_node *node;
    ir_value *in[GQA_N_INPUTS];
    int bits;                                 /* of a code of the cache; 0: it holds values */
    bool windowed;                            /* the cache holds the last keys only */
    ir_value *past_len, *new_len, *positions; /* positions: NULL when they follow from past_len */
    ir_value *key_past; /* rows before the new ones, of those that attention reads */
} gqa;

static ir_value *rotate(gqa *g, ir_value *x) {
    if (ir_attr_int(g->node, "do_rotary") != 1)
        return x;
    return OP_BUILD(
        g->b, "rotary",
        .in = {x, g->in[GQA_COS], g->in[GQA_SIN], g->past_len, g->new_len, g->positions},
        .ints = {{"interleaved", ir_attr_int(g->node, "rotary_interleaved")}});
}

/* ---- lengths and cache --------------------------------------------------- */

/* An operand whose number of rows may differ from that of the query is compared with it at run
 * time. */
static ir_value *other_length(const gqa *g, int operand) {
    const ir_dim *rows = op_in_dim(g->node, GQA_QUERY, 1);
    return rows && op_in_dim(g->node, operand, 1) == rows ? NULL : g->in[operand];
}

/* The bias, if its shape has to be compared with the lengths of a call. Those of a sequence are not
 * the file's. */
static ir_value *other_bias(const gqa *g, const op_options *options) {
    const ir_dim *total = NULL;
    if (!g->in[GQA_BIAS] || options->for_sequences)
        return NULL;
    const bool known = op_elements(g->node, GQA_TOTAL, 1, &total) == 1 && total &&
                       op_in_dim(g->node, GQA_BIAS, 3) == total;
    const ir_dim *rows = op_in_dim(g->node, GQA_QUERY, 1);
    return known && rows && op_in_dim(g->node, GQA_BIAS, 2) == rows ? NULL : g->in[GQA_BIAS];
}

static void read_lengths(gqa *g, const op_options *options) {
    ir_value *ids = ir_attr_int(g->node, "do_rotary") == 1 ? g->in[GQA_POSITION_IDS] : NULL;
    OP_BUILD(g->b, "seqlens_to_past",
             .in = {g->in[GQA_SEQLENS_K], g->in[GQA_TOTAL], g->in[GQA_QUERY], g->in[GQA_PAST_KEY],
                    ids, other_length(g, GQA_KEY), other_length(g, GQA_VALUE),
                    other_bias(g, options)},
             .text = {{"convention", options->cached_lengths ? "cached" : "total-1"}},
             .ints = {{"windowed", g->windowed}},
             .out = {&g->past_len, &g->new_len, ids ? &g->positions : NULL});
    g->key_past = g->past_len;
}

static void start_window(gqa *g) {
    const int64_t window = ir_attr_int(g->node, "local_window_size");
    ir_value *past = g->in[GQA_PAST_KEY];
    OP_BUILD(g->b, "window_start", .in = {past, g->past_len}, .ints = {{"window", window}},
             .out = {NULL, &g->key_past});
    if (g->in[GQA_BIAS])
        g->in[GQA_BIAS] =
            OP_BUILD(g->b, "window_bias", .in = {g->in[GQA_BIAS], past, g->past_len, g->new_len},
                     .ints = {{"window", window}});
}

/* kv_quantise or kv_dequantise of the keys (GQA_PAST_KEY) or values (GQA_PAST_VALUE). */
static ir_value *code(gqa *g, const char *op, ir_value *x, int past, int64_t size) {
    return OP_BUILD(g->b, op, .in = {x, g->in[past - GQA_PAST_KEY + GQA_K_SCALE]},
                    .ints = {{"bits", g->bits},
                             {"per_channel", gqa_per_channel(g->node, past)},
                             {size ? "size" : NULL, size}});
}

static ir_value *decode(gqa *g, ir_value *codes, int past) {
    int64_t size = 0;
    if (!ir_dim_is_const(gqa_head_size(g->node), &size))
        op_refuse(g->b, g->node, "the head size is not constant and the cache is quantised");
    return code(g, "kv_dequantise", codes, past, size);
}

/* Appends new rows to the cache; returns the rows that attention reads, as stored. */
static ir_value *store(gqa *g, int past, ir_value *fresh, ir_value **present) {
    const int64_t window = ir_attr_int(g->node, "local_window_size");
    ir_value *old = g->in[past], *rows;
    if (g->bits)
        fresh = code(g, "kv_quantise", fresh, past, 0);
    if (g->windowed) {
        rows = OP_BUILD(g->b, "window_rows", .in = {old, fresh, g->past_len, g->new_len},
                        .ints = {{"window", window}});
        *present = OP_BUILD(g->b, "window_present", .in = {old, rows, g->past_len, g->new_len},
                            .ints = {{"window", window}});
    } else {
        rows = *present = OP_BUILD(g->b, "concat_past_present",
                                   .in = {old, fresh, g->past_len, g->new_len, g->in[GQA_TOTAL]});
    }
    return g->bits ? decode(g, rows, past) : rows;
}

/* ---- attention ----------------------------------------------------------- */

/* The sink: head_sink, else a zero for each head with smooth_softmax. */
static ir_value *sink_of(gqa *g) {
    if (g->in[GQA_SINK] || ir_attr_int(g->node, "smooth_softmax") != 1)
        return g->in[GQA_SINK];
    ir_value *zero = ir_build_f32(g->b, 0);
    return OP_BUILD(g->b, "Expand", .in = {zero, OP_I64S(g->b, ir_attr_int(g->node, "num_heads"))});
}

/* The first total_sequence_length columns. */
static ir_value *shown(gqa *g, ir_value *qk) {
    ir_value *total = op_build_cast(g->b, OP_RESHAPE(g->b, g->in[GQA_TOTAL], 1), GQAC_I64);
    qk = OP_BUILD(g->b, "Slice", .in = {qk, OP_I64S(g->b, 0), total, OP_I64S(g->b, 3)});
    return op_build_cast(g->b, qk, op_in_type(g->node, GQA_QUERY).dtype);
}

static ir_value *attend(gqa *g, ir_value *q, ir_value *k, ir_value *v, const op_options *options,
                        ir_value **qk) {
    const int64_t window = ir_attr_int(g->node, "local_window_size");
    const int64_t stage = ir_attr_int(g->node, "qk_output");
    const float scale = attention_scores_scale(g->node, gqa_head_size(g->node));
    ir_value *sink = sink_of(g), *y;
    OP_BUILD(g->b, "attention", .in = {q, k, v, g->key_past, g->new_len, g->in[GQA_BIAS], sink},
             .floats = {{attention_scale_name(scale), scale}},
             .ints = {{"window", window > 0 && options->legacy_window ? window + 1 : window},
                      {stage ? "qk_stage" : NULL, stage}},
             .of = g->node, .same = {"softcap", "causal"}, .out = {&y, stage ? qk : NULL});
    return y;
}

static void split_all(gqa *g, ir_value **q, ir_value **k, ir_value **v) {
    int64_t heads = ir_attr_int(g->node, "num_heads"), kv = ir_attr_int(g->node, "kv_num_heads");
    if (g->in[GQA_KEY]) {
        *q = OP_BUILD(g->b, "split_heads", .in = {g->in[GQA_QUERY]}, .ints = {{"q", heads}});
        *k = OP_BUILD(g->b, "split_heads", .in = {g->in[GQA_KEY]}, .ints = {{"q", kv}});
        *v = OP_BUILD(g->b, "split_heads", .in = {g->in[GQA_VALUE]}, .ints = {{"q", kv}});
    } else {
        OP_BUILD(g->b, "split_heads", .in = {g->in[GQA_QUERY]}, .ints = {{"q", heads}, {"kv", kv}},
                 .out = {q, k, v});
    }
}

/* Sequences keep all rows, so they have a plain cache instead of a window-sized one. */
static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    gqa g = {.b = b,
             .node = node,
             .bits = gqa_code_bits(node),
             .windowed = ir_attr_int(node, "sliding_window_cache") == 1 && !options->for_sequences};
    ir_value *q, *k, *v, *present[2], *qk = NULL;
    for (int i = 0; i < GQA_N_INPUTS; i++)
        g.in[i] = ir_node_input(node, i);
    read_lengths(&g, options);
    if (g.windowed)
        start_window(&g);
    split_all(&g, &q, &k, &v);
    q = rotate(&g, gqa_norm(b, node, q, GQA_Q_NORM));
    k = rotate(&g, gqa_norm(b, node, k, GQA_K_NORM));
    k = store(&g, GQA_PAST_KEY, k, &present[0]);
    v = store(&g, GQA_PAST_VALUE, v, &present[1]);
    if (g.bits)
        q = op_build_cast(b, q, GQAC_F32);
    results[0] = attend(&g, q, k, v, options, &qk);
    if (g.bits)
        results[0] = op_build_cast(b, results[0], op_in_type(node, GQA_QUERY).dtype);
    if (qk)
        results[3] = shown(&g, qk);
    for (int i = 1; i <= 2 && i < node->n_outputs; i++)
        results[i] = present[i - 1];
}

static bool mixes(const ir_node *node) {
    return !ir_attr_int(node, "causal");
}

const gqac_op gqac_op_group_query_attention = {
    .schema = {.name = "GroupQueryAttention",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "query key? value? past_key? past_value? seqlens_k total_sequence_length "
                         "cos_cache? sin_cache? position_ids? attention_bias? head_sink? k_scale? "
                         "v_scale? q_norm_weight? k_norm_weight?",
               .outputs = "output present_key? present_value? output_qk?",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_STATE,
               .doc =
                   "attention with a KV cache; output [B,S,Hq*D], present [B,Hkv,max(total,P),D]"},
    .infer = gqa_infer,
    .verify = gqa_verify,
    .expand = expand,
    .take_apart = gqa_take_apart,
    .mixes = mixes,
};
