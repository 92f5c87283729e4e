/* com.microsoft.GroupQueryAttention: attention with a KV cache, rotary embedding and packed
 * projections in one node.
 *   query [B,S,Hq*D] with key, value [B,S,Hkv*D], or query alone [B,S,(Hq+2Hkv)*D]
 *   past_key, past_value [B,Hkv,P,D] -> output [B,S,Hq*D], present [B,Hkv,max(total,P),D]
 * Always lowered: what it means is the graph that `expand` builds. docs/group-query-attention.md
 * tells it with an example. */
#include "ops/gqa.h"

#include <math.h>
#include <string.h>

static const ir_attr_spec attrs[] = {
    {"num_heads", IR_ATTR_INT, .required = true, .doc = "query heads Hq"},
    {"kv_num_heads", IR_ATTR_INT, .required = true, .doc = "key/value heads Hkv; divides Hq"},
    {"scale", IR_ATTR_FLOAT, .fallback = {.set = true, .f = 0},
     .doc = "factor of the scores; 0: 1/sqrt(D)"},
    {"softcap", IR_ATTR_FLOAT, .fallback = {.set = true, .f = 0},
     .doc = "s becomes softcap * tanh(s / softcap); 0: off"},
    {"local_window_size", IR_ATTR_INT, .fallback = {.set = true, .i = -1},
     .doc = "keys a query sees, itself included; -1: all"},
    {"do_rotary", IR_ATTR_INT, .fallback = {.set = true, .i = 0},
     .doc = "1: rotary embedding of queries and keys"},
    {"rotary_interleaved", IR_ATTR_INT, .fallback = {.set = true, .i = 0},
     .doc = "1: pairs are neighbours, 0: half a head apart"},
    {"causal", IR_ATTR_INT, .fallback = {.set = true, .i = 1},
     .doc = "0: later tokens are visible"},
    {"sliding_window_cache", IR_ATTR_INT, .fallback = {.set = true, .i = 0},
     .doc = "1: past and present hold the last keys only"},
    {"smooth_softmax", IR_ATTR_INT, .fallback = {.set = true, .i = -1},
     .doc = "1: a zero joins the softmax"},
    {"qk_output", IR_ATTR_INT, .fallback = {.set = true, .i = 0},
     .doc = "output_qk: 1 scores, 2 probabilities"},
    {"k_quant_type", IR_ATTR_STRING, .fallback = {.set = true, .s = "NONE"},
     .doc = "NONE, PER_TENSOR or PER_CHANNEL: the cache holds codes"},
    {"v_quant_type", IR_ATTR_STRING, .fallback = {.set = true, .s = "NONE"},
     .doc = "the same for values"},
    {"kv_cache_bit_width", IR_ATTR_INT, .fallback = {.set = true, .i = 0},
     .doc = "bits of a code, 8 or 4; 0: none"},
    {"qk_norm_epsilon", IR_ATTR_FLOAT, .fallback = {.set = true, .f = 1e-6f},
     .doc = "epsilon of the norms of queries and keys"},
    {.name = NULL},
};

/* ---- expand -------------------------------------------------------------- */

typedef struct gqa {
    ir_builder *b;
    ir_node *node;
    ir_value *in[N_INPUTS];
    int bits;                                 /* of a code of the cache; 0: it holds values */
    bool windowed;                            /* the cache holds the last keys only */
    ir_value *past_len, *new_len, *positions; /* positions: NULL, they follow from past_len */
    ir_value *key_past; /* rows before the new ones among those that attention sees */
} gqa;

static ir_node *split(gqa *g, ir_value *x, int64_t q, int64_t kv) {
    ir_node *split = op_build(g->b, "gqac", "split_heads", 1, &x, kv > 0 ? 3 : 1);
    if (split) {
        ir_attr_set_int(split, "q", q);
        ir_attr_set_int(split, "kv", kv);
    }
    return split;
}

static ir_value *norm(gqa *g, ir_value *x, ir_value *weight) {
    if (!weight)
        return x;
    ir_node *norm =
        op_build(g->b, "", "SimplifiedLayerNormalization", 2, (ir_value *[]){x, weight}, 1);
    if (norm)
        ir_attr_set_float(norm, "epsilon", ir_attr_float(g->node, "qk_norm_epsilon"));
    return ir_build_result(g->b, norm, 0);
}

static ir_value *rotate(gqa *g, ir_value *x) {
    if (ir_attr_int(g->node, "do_rotary") != 1)
        return x;
    ir_node *rotary = op_build(
        g->b, "gqac", "rotary", g->positions ? 6 : 5,
        (ir_value *[]){x, g->in[COS], g->in[SIN], g->past_len, g->new_len, g->positions}, 1);
    if (rotary)
        ir_attr_set_int(rotary, "interleaved", ir_attr_int(g->node, "rotary_interleaved"));
    return ir_build_result(g->b, rotary, 0);
}

/* ---- lengths and cache --------------------------------------------------- */

/* Whether an operand may have other rows than the query: then they are compared at run time. */
static bool is_other_length(const gqa *g, int operand) {
    const ir_dim *rows = op_in_dim(g->node, QUERY, 1);
    return g->in[operand] && (!rows || op_in_dim(g->node, operand, 1) != rows);
}

static void read_lengths(gqa *g, const op_options *options) {
    bool ids = g->in[POSITION_IDS] && ir_attr_int(g->node, "do_rotary") == 1;
    ir_value *in[] = {g->in[SEQLENS_K],
                      g->in[TOTAL],
                      g->in[QUERY],
                      g->in[PAST_KEY],
                      ids ? g->in[POSITION_IDS] : NULL,
                      is_other_length(g, KEY) ? g->in[KEY] : NULL,
                      is_other_length(g, VALUE) ? g->in[VALUE] : NULL};
    int n = (int)(sizeof in / sizeof *in);
    while (n > 3 && !in[n - 1])
        n--;
    ir_node *lengths = op_build(g->b, "gqac", "seqlens_to_past", n, in, ids ? 3 : 2);
    if (lengths &&
        !ir_attr_set_string(lengths, "convention", options->cached_lengths ? "cached" : "total-1"))
        g->b->status = gqac_diag_oom(g->b->diag, "an attribute");
    if (lengths)
        ir_attr_set_int(lengths, "windowed", g->windowed);
    g->past_len = g->key_past = ir_build_result(g->b, lengths, 0);
    g->new_len = ir_build_result(g->b, lengths, 1);
    g->positions = ids ? ir_build_result(g->b, lengths, 2) : NULL;
}

/* An op of window-sized caches, by its name. */
static ir_node *windowed(gqa *g, const char *name, int n_inputs, ir_value *const *inputs,
                         int n_outputs) {
    ir_node *node = op_build(g->b, "gqac", name, n_inputs, inputs, n_outputs);
    if (node)
        ir_attr_set_int(node, "window", ir_attr_int(g->node, "local_window_size"));
    return node;
}

static void start_window(gqa *g) {
    ir_value *past = g->in[PAST_KEY];
    ir_node *start = windowed(g, "window_start", 2, (ir_value *[]){past, g->past_len}, 2);
    g->key_past = ir_build_result(g->b, start, 1);
    if (g->in[BIAS])
        g->in[BIAS] =
            ir_build_result(g->b,
                            windowed(g, "window_bias", 4,
                                     (ir_value *[]){g->in[BIAS], past, g->past_len, g->new_len}, 1),
                            0);
}

/* kv_quantise or kv_dequantise of the keys (PAST_KEY) or values (PAST_VALUE). */
static ir_node *code(gqa *g, const char *name, ir_value *x, int past) {
    ir_node *node =
        op_build(g->b, "gqac", name, 2, (ir_value *[]){x, g->in[past - PAST_KEY + K_SCALE]}, 1);
    if (node) {
        ir_attr_set_int(node, "bits", g->bits);
        ir_attr_set_int(node, "per_channel", gqa_per_channel(g->node, past));
    }
    return node;
}

static ir_value *decode(gqa *g, ir_value *codes, int past) {
    int64_t size = 0;
    if (!ir_dim_is_const(gqa_head_size(g->node), &size) && g->b->status == GQAC_OK)
        g->b->status = op_fail(g->node, g->b->diag, GQAC_UNSUPPORTED,
                               "the head size is not constant and the cache is quantised");
    ir_node *node = code(g, "kv_dequantise", codes, past);
    if (node)
        ir_attr_set_int(node, "size", size);
    return ir_build_result(g->b, node, 0);
}

/* New rows join the cache; gives the rows that attention sees, as stored. */
static ir_value *store(gqa *g, int past, ir_value *fresh, ir_value **present) {
    ir_value *old = g->in[past], *rows;
    if (g->bits)
        fresh = ir_build_result(g->b, code(g, "kv_quantise", fresh, past), 0);
    if (g->windowed) {
        ir_value *lengths[] = {old, fresh, g->past_len, g->new_len};
        rows = ir_build_result(g->b, windowed(g, "window_rows", 4, lengths, 1), 0);
        lengths[1] = rows;
        *present = ir_build_result(g->b, windowed(g, "window_present", 4, lengths, 1), 0);
    } else {
        rows = *present =
            op_build1(g->b, "gqac", "concat_past_present", 5,
                      (ir_value *[]){old, fresh, g->past_len, g->new_len, g->in[TOTAL]});
    }
    return g->bits ? decode(g, rows, past) : rows;
}

/* ---- attention ----------------------------------------------------------- */

static float scale_of(gqa *g) {
    float scale = ir_attr_float(g->node, "scale");
    int64_t size;
    if (scale != 0.0f)
        return scale;
    if (ir_dim_is_const(gqa_head_size(g->node), &size) && size > 0)
        return 1.0f / sqrtf((float)size);
    if (g->b->status == GQAC_OK)
        g->b->status = op_fail(g->node, g->b->diag, GQAC_UNSUPPORTED,
                               "the head size is not constant and there is no scale");
    return 1.0f;
}

static ir_value *cast(gqa *g, ir_value *x, gqac_dtype to) {
    ir_node *cast = op_build(g->b, "", "Cast", 1, &x, 1);
    if (cast)
        ir_attr_set_dtype(cast, "to", to);
    return ir_build_result(g->b, cast, 0);
}

static ir_value *reshape(gqa *g, ir_value *x, int64_t n) {
    return op_build1(g->b, "", "Reshape", 2, (ir_value *[]){x, ir_build_i64s(g->b, 1, &n)});
}

/* Zeros, one for each head, for smooth_softmax; head_sink wins. */
static ir_value *sink_of(gqa *g) {
    if (g->in[SINK] || ir_attr_int(g->node, "smooth_softmax") != 1)
        return g->in[SINK];
    int64_t heads = ir_attr_int(g->node, "num_heads");
    return op_build1(g->b, "", "Expand", 2,
                     (ir_value *[]){ir_build_f32(g->b, 0), ir_build_i64s(g->b, 1, &heads)});
}

/* The first total_sequence_length columns. */
static ir_value *shown(gqa *g, ir_value *qk) {
    const int64_t zero = 0, last = 3;
    ir_value *total = cast(g, reshape(g, g->in[TOTAL], 1), GQAC_I64);
    qk = op_build1(
        g->b, "", "Slice", 4,
        (ir_value *[]){qk, ir_build_i64s(g->b, 1, &zero), total, ir_build_i64s(g->b, 1, &last)});
    return cast(g, qk, op_in_type(g->node, QUERY).dtype);
}

static ir_node *attend(gqa *g, ir_value *q, ir_value *k, ir_value *v, const op_options *options) {
    float scale = scale_of(g);
    int64_t window = ir_attr_int(g->node, "local_window_size");
    int64_t stage = ir_attr_int(g->node, "qk_output");
    ir_value *sink = sink_of(g);
    ir_node *attention = op_build(
        g->b, "gqac", "attention",
        sink          ? 7
        : g->in[BIAS] ? 6
                      : 5,
        (ir_value *[]){q, k, v, g->key_past, g->new_len, g->in[BIAS], sink}, stage ? 2 : 1);
    if (!attention)
        return NULL;
    ir_attr_set_float(attention, "scale", scale);
    ir_attr_set_float(attention, "softcap", ir_attr_float(g->node, "softcap"));
    ir_attr_set_int(attention, "causal", ir_attr_int(g->node, "causal"));
    ir_attr_set_int(attention, "window",
                    window > 0 && options->legacy_window ? window + 1 : window);
    if (stage)
        ir_attr_set_int(attention, "qk_stage", stage);
    return attention;
}

static void split_all(gqa *g, ir_value **q, ir_value **k, ir_value **v) {
    int64_t heads = ir_attr_int(g->node, "num_heads"), kv = ir_attr_int(g->node, "kv_num_heads");
    ir_node *first = split(g, g->in[QUERY], heads, g->in[KEY] ? 0 : kv);
    *q = ir_build_result(g->b, first, 0);
    *k = ir_build_result(g->b, g->in[KEY] ? split(g, g->in[KEY], kv, 0) : first, !g->in[KEY]);
    *v = ir_build_result(g->b, g->in[KEY] ? split(g, g->in[VALUE], kv, 0) : first,
                         g->in[KEY] ? 0 : 2);
}

/* Sequences keep all rows: there the window-sized cache is a plain one. */
static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    gqa g = {.b = b,
             .node = node,
             .bits = gqa_code_bits(node),
             .windowed = ir_attr_int(node, "sliding_window_cache") == 1 && !options->for_sequences};
    const gqac_dtype dtype = op_in_type(node, QUERY).dtype;
    ir_value *q, *k, *v, *present[2];
    for (int i = 0; i < N_INPUTS; i++)
        g.in[i] = ir_node_input(node, i);
    read_lengths(&g, options);
    if (g.windowed)
        start_window(&g);
    split_all(&g, &q, &k, &v);
    q = rotate(&g, norm(&g, q, g.in[Q_NORM]));
    k = rotate(&g, norm(&g, k, g.in[K_NORM]));
    k = store(&g, PAST_KEY, k, &present[0]);
    v = store(&g, PAST_VALUE, v, &present[1]);
    if (g.bits)
        q = cast(&g, q, GQAC_F32);
    ir_node *attention = attend(&g, q, k, v, options);
    results[0] = ir_build_result(b, attention, 0);
    if (g.bits)
        results[0] = cast(&g, results[0], dtype);
    if (ir_node_output(node, 3))
        results[3] = shown(&g, ir_build_result(b, attention, 1));
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
