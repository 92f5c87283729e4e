/* com.microsoft.GroupQueryAttention: attention with a KV cache, rotary embedding and packed
 * projections in one node.
 *   query [B,S,Hq*D] with key, value [B,S,Hkv*D], or query alone [B,S,(Hq+2Hkv)*D]
 *   past_key, past_value [B,Hkv,P,D] -> output [B,S,Hq*D], present [B,Hkv,max(total,P),D]
 * Always lowered: what it means is the graph that `expand` builds. docs/group-query-attention.md
 * tells it with an example. */
#include "ops/attention.h"

#include <math.h>
#include <string.h>

enum {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    SEQLENS_K,
    TOTAL,
    COS,
    SIN,
    POSITION_IDS,
    BIAS,
    SINK,
    K_SCALE,
    V_SCALE,
    Q_NORM,
    K_NORM,
    N_INPUTS
};

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
    {"sliding_window_cache", IR_ATTR_INT, .fallback = {.set = true, .i = 0}, .doc = "only 0"},
    {"smooth_softmax", IR_ATTR_INT, .fallback = {.set = true, .i = -1},
     .doc = "1: a zero joins the softmax"},
    {"qk_output", IR_ATTR_INT, .fallback = {.set = true, .i = 0},
     .doc = "output_qk: 1 scores, 2 probabilities"},
    {"k_quant_type", IR_ATTR_STRING, .fallback = {.set = true, .s = "NONE"}, .doc = "only NONE"},
    {"v_quant_type", IR_ATTR_STRING, .fallback = {.set = true, .s = "NONE"}, .doc = "only NONE"},
    {"kv_cache_bit_width", IR_ATTR_INT, .fallback = {.set = true, .i = 0}, .doc = "only 0"},
    {"qk_norm_epsilon", IR_ATTR_FLOAT, .fallback = {.set = true, .f = 1e-6f},
     .doc = "epsilon of the norms of queries and keys"},
    {.name = NULL},
};

static bool has(const ir_node *node, int input) {
    return ir_node_input(node, input) != NULL;
}

/* ---- verify: nonsense first, then what is not built ---------------------- */

static gqac_status check_flag(const ir_node *node, const char *name, int64_t least,
                              gqac_diag *diag) {
    int64_t value = ir_attr_int(node, name);
    if (value < least || value > 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute %s = %lld: %s0 or 1", name,
                (long long)value, least < 0 ? "-1, " : "");
    return GQAC_OK;
}

static gqac_status check_numbers(const ir_node *node, gqac_diag *diag) {
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    int64_t window = ir_attr_int(node, "local_window_size");
    float cap = ir_attr_float(node, "softcap"), scale = ir_attr_float(node, "scale");
    float epsilon = ir_attr_float(node, "qk_norm_epsilon");
    if (q < 1 || q > INT32_MAX)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute num_heads = %lld must be positive",
                (long long)q);
    if (kv < 1 || q % kv != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute kv_num_heads = %lld must be positive and divide num_heads = %lld",
                (long long)kv, (long long)q);
    if (window == 0 || window < -1 || window > INT32_MAX)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute local_window_size = %lld: -1 (off) or at least 1", (long long)window);
    if (!(cap >= 0) || !isfinite(cap))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute softcap = %g: 0 (off) or a positive number", (double)cap);
    if (!isfinite(scale))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute scale = %g must be finite",
                (double)scale);
    if (!(epsilon >= 0) || !isfinite(epsilon))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute qk_norm_epsilon = %g must be finite "
                "and not negative",
                (double)epsilon);
    GQAC_TRY(check_flag(node, "do_rotary", 0, diag));
    GQAC_TRY(check_flag(node, "rotary_interleaved", 0, diag));
    GQAC_TRY(check_flag(node, "causal", 0, diag));
    GQAC_TRY(check_flag(node, "sliding_window_cache", 0, diag));
    if (window > 0 && ir_attr_int(node, "causal") == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "causal = 0 needs local_window_size = -1, not %lld",
                (long long)window);
    return check_flag(node, "smooth_softmax", -1, diag);
}

static gqac_status check_pair(const ir_node *node, int a, int b, gqac_diag *diag) {
    if (has(node, a) == has(node, b))
        return GQAC_OK;
    char first[64], second[64];
    ir_schema_name(node->op->inputs, a, first, sizeof first);
    ir_schema_name(node->op->inputs, b, second, sizeof second);
    OP_FAIL(node, diag, GQAC_INVALID_MODEL, "inputs %s and %s must be both present or both absent",
            first, second);
}

static gqac_status check_wiring(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(check_pair(node, KEY, VALUE, diag));
    GQAC_TRY(check_pair(node, PAST_KEY, PAST_VALUE, diag));
    GQAC_TRY(check_pair(node, COS, SIN, diag));
    GQAC_TRY(check_pair(node, Q_NORM, K_NORM, diag));
    if ((ir_node_output(node, 1) != NULL) != (ir_node_output(node, 2) != NULL))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "present_key and present_value must be both wanted or both omitted");
    if (ir_attr_int(node, "do_rotary") == 1 && !has(node, COS))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "do_rotary = 1 needs cos_cache and sin_cache");
    int64_t qk = ir_attr_int(node, "qk_output");
    if (qk < 0 || qk > 2)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute qk_output = %lld: 0, 1 or 2",
                (long long)qk);
    if ((qk != 0) != (ir_node_output(node, 3) != NULL))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute qk_output = %lld %s output output_qk",
                (long long)qk, qk ? "needs the" : "leaves nothing for the");
    return GQAC_OK;
}

static gqac_status check_quantised(const ir_node *node, gqac_diag *diag) {
    static const char *const names[] = {"k_quant_type", "v_quant_type"};
    int64_t bits = ir_attr_int(node, "kv_cache_bit_width");
    for (int i = 0; i < 2; i++) {
        const char *type = ir_attr_get(node, names[i])->s;
        bool known = !strcmp(type, "PER_TENSOR") || !strcmp(type, "PER_CHANNEL");
        if (strcmp(type, "NONE") != 0)
            OP_FAIL(node, diag, known ? GQAC_UNSUPPORTED : GQAC_INVALID_MODEL,
                    "attribute %s = '%s' %s", names[i], type,
                    known ? "(a quantised KV cache) is not supported"
                          : "is none of NONE, PER_TENSOR, PER_CHANNEL");
    }
    if (bits != 0)
        OP_FAIL(node, diag, bits == 4 || bits == 8 ? GQAC_UNSUPPORTED : GQAC_INVALID_MODEL,
                "attribute kv_cache_bit_width = %lld: only 0 is supported", (long long)bits);
    return GQAC_OK;
}

static gqac_status check_supported(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(check_quantised(node, diag));
    for (int i = K_SCALE; i <= V_SCALE; i++)
        if (has(node, i))
            OP_FAIL(node, diag, GQAC_UNSUPPORTED, "input %s is not supported",
                    i == K_SCALE ? "k_scale" : "v_scale");
    if (ir_attr_int(node, "sliding_window_cache") == 1)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "attribute sliding_window_cache = 1 is not supported");
    return GQAC_OK;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(check_numbers(node, diag));
    GQAC_TRY(check_wiring(node, diag));
    return check_supported(node, diag);
}

/* ---- infer --------------------------------------------------------------- */

/* D from the query, else from the past; NULL when neither is known. */
static const ir_dim *head_size(const ir_node *node) {
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    const ir_dim *heads = ir_dim_const(op_dims(node), has(node, KEY) ? q : q + 2 * kv);
    const ir_dim *size = ir_dim_div_exact(op_dims(node), op_in_dim(node, QUERY, 2), heads);
    return size ? size : op_in_dim(node, PAST_KEY, 3);
}

static gqac_status check_types(const ir_node *node, gqac_diag *diag) {
    static const int like_query[] = {KEY, VALUE, PAST_KEY, PAST_VALUE, COS,
                                     SIN, BIAS,  SINK,     Q_NORM,     K_NORM};
    static const int ranks[N_INPUTS] = {
        [QUERY] = 3,      [KEY] = 3,  [VALUE] = 3,  [PAST_KEY] = 4,
        [PAST_VALUE] = 4, [COS] = 2,  [SIN] = 2,    [POSITION_IDS] = 2,
        [BIAS] = 4,       [SINK] = 1, [Q_NORM] = 1, [K_NORM] = 1};
    GQAC_TRY(op_check_dtype(node, QUERY, OP_FLOATS, diag));
    GQAC_TRY(op_check_dtype(node, PAST_KEY, OP_FLOATS, diag)); /* also a quantised cache */
    for (size_t i = 0; i < sizeof like_query / sizeof *like_query; i++)
        GQAC_TRY(op_check_same(node, like_query[i], QUERY, diag));
    for (int i = 0; i < N_INPUTS; i++)
        if (ranks[i] > 0)
            GQAC_TRY(attention_want_rank(node, i, ranks[i], diag));
    GQAC_TRY(attention_want_dtype(node, SEQLENS_K, GQAC_I32, diag));
    GQAC_TRY(attention_want_dtype(node, TOTAL, GQAC_I32, diag));
    GQAC_TRY(attention_want_dtype(node, POSITION_IDS, GQAC_I64, diag));
    if (op_in_type(node, SEQLENS_K).rank == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "seqlens_k must have at least one axis");
    return GQAC_OK;
}

static gqac_status check_hidden(const ir_node *node, gqac_diag *diag) {
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads"), hidden;
    int64_t heads = has(node, KEY) ? q : q + 2 * kv;
    if (ir_dim_is_const(op_in_dim(node, QUERY, 2), &hidden) &&
        (hidden < heads || hidden % heads != 0))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "query of width %lld over %lld heads",
                (long long)hidden, (long long)heads);
    for (int i = KEY; i <= VALUE; i++) {
        const ir_dim *wanted =
            ir_dim_mul(op_dims(node), head_size(node), ir_dim_const(op_dims(node), kv));
        GQAC_TRY(
            attention_same_dim(node, op_in_dim(node, i, 2), wanted, "width of key or value", diag));
        int64_t rows, chunk;
        if (ir_dim_is_const(op_in_dim(node, i, 1), &rows) &&
            ir_dim_is_const(op_in_dim(node, QUERY, 1), &chunk) && rows != chunk &&
            (rows != 0 || !has(node, PAST_KEY)))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "key and value have %lld rows for %lld queries",
                    (long long)rows, (long long)chunk);
    }
    return GQAC_OK;
}

/* A dim of the bias that is 1 or `full`. */
static gqac_status check_bias_dim(const ir_node *node, int axis, const ir_dim *full,
                                  gqac_diag *diag) {
    int64_t dim;
    const ir_dim *have = op_in_dim(node, BIAS, axis);
    if (axis < 2 && ir_dim_is_const(have, &dim) && dim == 1)
        return GQAC_OK;
    return attention_same_dim(node, have, full, "dimension of attention_bias", diag);
}

static gqac_status check_extras(const ir_node *node, gqac_diag *diag) {
    const ir_dim *heads = ir_dim_const(op_dims(node), ir_attr_int(node, "num_heads"));
    const ir_dim *total = NULL;
    if (op_elements(node, TOTAL, 1, &total) != 1)
        total = NULL;
    GQAC_TRY(check_bias_dim(node, 0, op_in_dim(node, QUERY, 0), diag));
    GQAC_TRY(check_bias_dim(node, 1, heads, diag));
    GQAC_TRY(check_bias_dim(node, 2, op_in_dim(node, QUERY, 1), diag));
    GQAC_TRY(check_bias_dim(node, 3, total, diag));
    return attention_same_dim(node, op_in_dim(node, SINK, 0), heads, "head_sink", diag);
}

static gqac_status check_dims(const ir_node *node, gqac_diag *diag) {
    const ir_dim *size = head_size(node);
    const ir_dim *kv = ir_dim_const(op_dims(node), ir_attr_int(node, "kv_num_heads"));
    GQAC_TRY(check_hidden(node, diag));
    for (int i = PAST_KEY; i <= PAST_VALUE; i++) {
        GQAC_TRY(attention_same_dim(node, op_in_dim(node, i, 1), kv, "heads of the past", diag));
        GQAC_TRY(
            attention_same_dim(node, op_in_dim(node, i, 3), size, "head size of the past", diag));
    }
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, PAST_VALUE, 2), op_in_dim(node, PAST_KEY, 2),
                                "rows of past_value", diag));
    for (int i = 0; i < 2; i++)
        GQAC_TRY(attention_same_dim(node, op_in_dim(node, SIN, i), op_in_dim(node, COS, i),
                                    "dimension of sin_cache", diag));
    for (int i = Q_NORM; i <= K_NORM; i++)
        GQAC_TRY(attention_same_dim(node, op_in_dim(node, i, 0), size, "q/k norm weight", diag));
    int64_t half, d;
    if (ir_attr_int(node, "do_rotary") == 1 && ir_dim_is_const(op_in_dim(node, COS, 1), &half) &&
        ir_dim_is_const(size, &d) && half > d / 2)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "cos_cache of width %lld for a head of %lld channels", (long long)half,
                (long long)d);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_dims *dims = op_dims(node);
    GQAC_TRY(check_types(node, diag));
    GQAC_TRY(check_dims(node, diag));
    GQAC_TRY(check_extras(node, diag));
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    const ir_dim *batch = op_in_dim(node, QUERY, 0), *size = head_size(node);
    gqac_dtype dtype = op_in_type(node, QUERY).dtype;
    const ir_dim *out[3] = {batch, op_in_dim(node, QUERY, 1),
                            ir_dim_mul(dims, size, ir_dim_const(dims, q))};
    const ir_dim *present[4] = {batch, ir_dim_const(dims, kv),
                                attention_capacity(node, TOTAL, PAST_KEY), size};
    GQAC_TRY(op_set_type(node, 0, dtype, 3, out, diag));
    GQAC_TRY(op_set_type(node, 1, dtype, 4, present, diag));
    GQAC_TRY(op_set_type(node, 2, dtype, 4, present, diag));
    const ir_dim *qk[4] = {batch, ir_dim_const(dims, q), out[1], NULL};
    if (op_elements(node, TOTAL, 1, &qk[3]) != 1)
        qk[3] = NULL;
    return op_set_type(node, 3, dtype, 4, qk, diag);
}

/* ---- expand -------------------------------------------------------------- */

typedef struct gqa {
    ir_builder *b;
    ir_node *node;
    ir_value *in[N_INPUTS];
    ir_value *past_len, *new_len, *positions; /* positions: NULL, they follow from past_len */
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

static ir_value *concat(gqa *g, ir_value *past, ir_value *fresh) {
    return op_build1(g->b, "gqac", "concat_past_present", 5,
                     (ir_value *[]){past, fresh, g->past_len, g->new_len, g->in[TOTAL]});
}

static void read_lengths(gqa *g, const op_options *options) {
    bool ids = g->in[POSITION_IDS] && ir_attr_int(g->node, "do_rotary") == 1;
    ir_node *lengths = op_build(g->b, "gqac", "seqlens_to_past",
                                ids               ? 5
                                : g->in[PAST_KEY] ? 4
                                                  : 3,
                                (ir_value *[]){g->in[SEQLENS_K], g->in[TOTAL], g->in[QUERY],
                                               g->in[PAST_KEY], g->in[POSITION_IDS]},
                                ids ? 3 : 2);
    if (lengths &&
        !ir_attr_set_string(lengths, "convention", options->cached_lengths ? "cached" : "total-1"))
        g->b->status = gqac_diag_oom(g->b->diag, "an attribute");
    g->past_len = ir_build_result(g->b, lengths, 0);
    g->new_len = ir_build_result(g->b, lengths, 1);
    g->positions = ids ? ir_build_result(g->b, lengths, 2) : NULL;
}

static float scale_of(gqa *g) {
    float scale = ir_attr_float(g->node, "scale");
    int64_t size;
    if (scale != 0.0f)
        return scale;
    if (ir_dim_is_const(head_size(g->node), &size) && size > 0)
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
        (ir_value *[]){q, k, v, g->past_len, g->new_len, g->in[BIAS], sink}, stage ? 2 : 1);
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

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    gqa g = {.b = b, .node = node};
    int64_t heads = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    ir_value *q, *k, *v;
    for (int i = 0; i < N_INPUTS; i++)
        g.in[i] = ir_node_input(node, i);
    read_lengths(&g, options);
    if (g.in[KEY]) {
        q = ir_build_result(b, split(&g, g.in[QUERY], heads, 0), 0);
        k = ir_build_result(b, split(&g, g.in[KEY], kv, 0), 0);
        v = ir_build_result(b, split(&g, g.in[VALUE], kv, 0), 0);
    } else {
        ir_node *qkv = split(&g, g.in[QUERY], heads, kv);
        q = ir_build_result(b, qkv, 0);
        k = ir_build_result(b, qkv, 1);
        v = ir_build_result(b, qkv, 2);
    }
    q = rotate(&g, norm(&g, q, g.in[Q_NORM]));
    k = rotate(&g, norm(&g, k, g.in[K_NORM]));
    k = concat(&g, g.in[PAST_KEY], k);
    v = concat(&g, g.in[PAST_VALUE], v);
    ir_node *attention = attend(&g, q, k, v, options);
    results[0] = ir_build_result(b, attention, 0);
    if (ir_node_output(node, 3))
        results[3] = shown(&g, ir_build_result(b, attention, 1));
    if (node->n_outputs > 1)
        results[1] = k;
    if (node->n_outputs > 2)
        results[2] = v;
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
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .mixes = mixes,
};
