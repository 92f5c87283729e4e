/* Checks that a node of GroupQueryAttention is valid and supported: values of attributes, operands,
 * types and shapes. A value without meaning is INVALID_MODEL, even where other run times read it as
 * "off"; nothing is ignored. */
#include "ops/gqa.h"

#include <stdio.h>
#include <string.h>

static bool has(const ir_node *node, int input) {
    return ir_node_input(node, input) != NULL;
}

/* ---- verify -------------------------------------------------------------- */

static gqac_status check_numbers(const ir_node *node, gqac_diag *diag) {
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    int64_t window = ir_attr_int(node, "local_window_size");
    GQAC_TRY(op_check_int(node, "num_heads", 1, INT32_MAX, diag));
    if (kv < 1 || q % kv != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute kv_num_heads = %lld must be positive and divide num_heads = %lld",
                (long long)kv, (long long)q);
    if (window == 0 || window < -1 || window > INT32_MAX)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute local_window_size = %lld: must be -1 (off) or at least 1",
                (long long)window);
    GQAC_TRY(op_check_float(node, "softcap", false, diag));
    GQAC_TRY(op_check_float(node, "scale", true, diag));
    GQAC_TRY(op_check_float(node, "qk_norm_epsilon", false, diag));
    GQAC_TRY(op_check_int(node, "do_rotary", 0, 1, diag));
    GQAC_TRY(op_check_int(node, "rotary_interleaved", 0, 1, diag));
    GQAC_TRY(op_check_int(node, "causal", 0, 1, diag));
    GQAC_TRY(op_check_int(node, "sliding_window_cache", 0, 1, diag));
    if (window > 0 && ir_attr_int(node, "causal") == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "causal = 0 needs local_window_size = -1, not %lld",
                (long long)window);
    return op_check_int(node, "smooth_softmax", -1, 1, diag);
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
    GQAC_TRY(check_pair(node, GQA_KEY, GQA_VALUE, diag));
    GQAC_TRY(check_pair(node, GQA_PAST_KEY, GQA_PAST_VALUE, diag));
    GQAC_TRY(check_pair(node, GQA_COS, GQA_SIN, diag));
    GQAC_TRY(check_pair(node, GQA_Q_NORM, GQA_K_NORM, diag));
    if ((ir_node_output(node, 1) != NULL) != (ir_node_output(node, 2) != NULL))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "present_key and present_value must be both wanted or both omitted");
    if (ir_attr_int(node, "do_rotary") == 1 && !has(node, GQA_COS))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "do_rotary = 1 needs cos_cache and sin_cache");
    int64_t qk = ir_attr_int(node, "qk_output");
    GQAC_TRY(op_check_int(node, "qk_output", 0, 2, diag));
    if ((qk != 0) != (ir_node_output(node, 3) != NULL))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute qk_output = %lld %s output output_qk",
                (long long)qk, qk ? "needs the" : "has no scores for the");
    return GQAC_OK;
}

static const char *const quant_types[] = {"k_quant_type", "v_quant_type"};

static bool is_quantised(const ir_node *node, int i) {
    return strcmp(ir_attr_get(node, quant_types[i])->s, "NONE") != 0;
}

int gqa_code_bits(const ir_node *node) {
    return is_quantised(node, 0) ? (int)ir_attr_int(node, "kv_cache_bit_width") : 0;
}

bool gqa_per_channel(const ir_node *node, int past) {
    return !strcmp(ir_attr_get(node, quant_types[past - GQA_PAST_KEY])->s, "PER_CHANNEL");
}

static gqac_status check_quant_types(const ir_node *node, gqac_diag *diag) {
    for (int i = 0; i < 2; i++) {
        const char *type = ir_attr_get(node, quant_types[i])->s;
        if (is_quantised(node, i) && strcmp(type, "PER_TENSOR") != 0 &&
            strcmp(type, "PER_CHANNEL") != 0)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "attribute %s = '%.40s': must be NONE, PER_TENSOR or PER_CHANNEL",
                    quant_types[i], type);
    }
    if (is_quantised(node, 0) != is_quantised(node, 1))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attributes k_quant_type = '%s' and v_quant_type = '%s': both must quantise, or "
                "neither",
                ir_attr_get(node, quant_types[0])->s, ir_attr_get(node, quant_types[1])->s);
    return GQAC_OK;
}

static gqac_status check_quantised(const ir_node *node, gqac_diag *diag) {
    int64_t bits = ir_attr_int(node, "kv_cache_bit_width");
    GQAC_TRY(check_quant_types(node, diag));
    bool quantised = is_quantised(node, 0);
    if (quantised ? bits != 4 && bits != 8 : bits != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute kv_cache_bit_width = %lld: %s",
                (long long)bits,
                quantised ? "4 or 8 for a quantised cache" : "0 unless k_quant_type is given");
    for (int i = GQA_K_SCALE; i <= GQA_V_SCALE; i++)
        if (has(node, i) != quantised)
            OP_FAIL(
                node, diag, GQAC_INVALID_MODEL,
                "input %s must be present if and only if k_quant_type and v_quant_type quantise",
                i == GQA_K_SCALE ? "k_scale" : "v_scale");
    if (quantised && !has(node, GQA_PAST_KEY))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "a quantised cache (k_quant_type = '%s') needs past_key and past_value, without "
                "rows for a first prompt",
                ir_attr_get(node, quant_types[0])->s);
    return GQAC_OK;
}

static gqac_status check_window_cache(const ir_node *node, gqac_diag *diag) {
    if (ir_attr_int(node, "sliding_window_cache") != 1)
        return GQAC_OK;
    if (ir_attr_int(node, "local_window_size") < 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute sliding_window_cache = 1 needs local_window_size > 0");
    if (!has(node, GQA_PAST_KEY))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute sliding_window_cache = 1 needs past_key and past_value");
    if (ir_attr_int(node, "qk_output") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "attribute qk_output = %lld is not supported with sliding_window_cache = 1",
                (long long)ir_attr_int(node, "qk_output"));
    return GQAC_OK;
}

gqac_status gqa_verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(check_numbers(node, diag));
    GQAC_TRY(check_wiring(node, diag));
    GQAC_TRY(check_quantised(node, diag));
    return check_window_cache(node, diag);
}

/* ---- infer --------------------------------------------------------------- */

const ir_dim *gqa_head_size(const ir_node *node) {
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    const ir_dim *heads = ir_dim_const(op_dims(node), has(node, GQA_KEY) ? q : q + 2 * kv);
    const ir_dim *size = ir_dim_div_exact(op_dims(node), op_in_dim(node, GQA_QUERY, 2), heads);
    return size || gqa_code_bits(node) == 4 ? size : op_in_dim(node, GQA_PAST_KEY, 3);
}

static gqac_dtype cache_type(const ir_node *node) {
    const int bits = gqa_code_bits(node);
    return bits == 8 ? GQAC_I8 : bits == 4 ? GQAC_U8 : op_in_type(node, GQA_QUERY).dtype;
}

static gqac_status check_cache_type(const ir_node *node, int input, gqac_diag *diag) {
    gqac_dtype have = op_in_type(node, input).dtype, wanted = cache_type(node);
    if (have == GQAC_NONE || wanted == GQAC_NONE || have == wanted)
        return GQAC_OK;
    OP_FAIL(node, diag, GQAC_INVALID_MODEL,
            "input %s has the type %s, expected %s (k_quant_type = '%s', kv_cache_bit_width = %d)",
            input == GQA_PAST_KEY ? "past_key" : "past_value", gqac_dtype_name(have),
            gqac_dtype_name(wanted), ir_attr_get(node, quant_types[0])->s, gqa_code_bits(node));
}

static gqac_status check_types(const ir_node *node, gqac_diag *diag) {
    static const int like_query[] = {GQA_KEY,  GQA_VALUE, GQA_COS,    GQA_SIN,
                                     GQA_BIAS, GQA_SINK,  GQA_Q_NORM, GQA_K_NORM};
    static const int ranks[GQA_N_INPUTS] = {
        [GQA_QUERY] = 3,      [GQA_KEY] = 3,  [GQA_VALUE] = 3,  [GQA_PAST_KEY] = 4,
        [GQA_PAST_VALUE] = 4, [GQA_COS] = 2,  [GQA_SIN] = 2,    [GQA_POSITION_IDS] = 2,
        [GQA_BIAS] = 4,       [GQA_SINK] = 1, [GQA_Q_NORM] = 1, [GQA_K_NORM] = 1};
    GQAC_TRY(op_check_dtype(node, GQA_QUERY, OP_FLOATS, diag));
    for (size_t i = 0; i < sizeof like_query / sizeof *like_query; i++)
        GQAC_TRY(op_check_same(node, like_query[i], GQA_QUERY, diag));
    for (int i = GQA_PAST_KEY; i <= GQA_PAST_VALUE; i++)
        GQAC_TRY(check_cache_type(node, i, diag));
    for (int i = GQA_K_SCALE; i <= GQA_V_SCALE; i++)
        GQAC_TRY(attention_want_dtype(node, i, GQAC_F32, diag));
    for (int i = 0; i < GQA_N_INPUTS; i++)
        if (ranks[i] > 0)
            GQAC_TRY(attention_want_rank(node, i, ranks[i], diag));
    GQAC_TRY(attention_want_dtype(node, GQA_SEQLENS_K, GQAC_I32, diag));
    GQAC_TRY(attention_want_dtype(node, GQA_TOTAL, GQAC_I32, diag));
    GQAC_TRY(attention_want_dtype(node, GQA_POSITION_IDS, GQAC_I64, diag));
    if (op_in_type(node, GQA_SEQLENS_K).rank == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "seqlens_k must have at least one axis");
    return GQAC_OK;
}

/* Checks the length of axis `axis` of an input. */
static gqac_status want_dim(const ir_node *node, int input, int axis, const ir_dim *wanted,
                            gqac_diag *diag) {
    char name[64], what[100];
    ir_schema_name(node->op->inputs, input, name, sizeof name);
    snprintf(what, sizeof what, "dimension %d of %s", axis, name);
    return attention_same_dim(node, op_in_dim(node, input, axis), wanted, what, diag);
}

static gqac_status check_hidden(const ir_node *node, gqac_diag *diag) {
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads"), hidden;
    int64_t heads = has(node, GQA_KEY) ? q : q + 2 * kv;
    if (ir_dim_is_const(op_in_dim(node, GQA_QUERY, 2), &hidden) &&
        (hidden < heads || hidden % heads != 0))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "query of width %lld cannot be divided into %lld heads", (long long)hidden,
                (long long)heads);
    for (int i = GQA_KEY; i <= GQA_VALUE; i++) {
        const ir_dim *wanted =
            ir_dim_mul(op_dims(node), gqa_head_size(node), ir_dim_const(op_dims(node), kv));
        GQAC_TRY(want_dim(node, i, 0, op_in_dim(node, GQA_QUERY, 0), diag));
        GQAC_TRY(want_dim(node, i, 2, wanted, diag));
        int64_t rows, chunk;
        if (ir_dim_is_const(op_in_dim(node, i, 1), &rows) &&
            ir_dim_is_const(op_in_dim(node, GQA_QUERY, 1), &chunk) && rows != chunk &&
            (rows != 0 || !has(node, GQA_PAST_KEY)))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "key and value have %lld rows for %lld queries",
                    (long long)rows, (long long)chunk);
    }
    return GQAC_OK;
}

/* Checks a dim of the bias: 1 or `full`. */
static gqac_status check_bias_dim(const ir_node *node, int axis, const ir_dim *full,
                                  gqac_diag *diag) {
    int64_t dim;
    const ir_dim *have = op_in_dim(node, GQA_BIAS, axis);
    if (axis < 2 && ir_dim_is_const(have, &dim) && dim == 1)
        return GQAC_OK;
    return want_dim(node, GQA_BIAS, axis, full, diag);
}

static gqac_status check_extras(const ir_node *node, gqac_diag *diag) {
    const ir_dim *heads = ir_dim_const(op_dims(node), ir_attr_int(node, "num_heads"));
    const ir_dim *total = NULL;
    if (op_elements(node, GQA_TOTAL, 1, &total) != 1)
        total = NULL;
    GQAC_TRY(check_bias_dim(node, 0, op_in_dim(node, GQA_QUERY, 0), diag));
    GQAC_TRY(check_bias_dim(node, 1, heads, diag));
    GQAC_TRY(check_bias_dim(node, 2, op_in_dim(node, GQA_QUERY, 1), diag));
    GQAC_TRY(check_bias_dim(node, 3, total, diag));
    return want_dim(node, GQA_SINK, 0, heads, diag);
}

/* Elements of a row of past and present: channels, or bytes of codes. */
static const ir_dim *cache_width(const ir_node *node) {
    return attention_code_width(op_dims(node), gqa_head_size(node), gqa_code_bits(node));
}

/* Checks the number of scales, in any shape, against the type of quantisation. */
static gqac_status check_scales(const ir_node *node, int past, gqac_diag *diag) {
    const int input = past - GQA_PAST_KEY + GQA_K_SCALE;
    ir_dims *dims = op_dims(node);
    ir_type type = op_in_type(node, input);
    const ir_dim *count = ir_dim_const(dims, 1), *wanted = count;
    if (type.rank < 0 || !has(node, input))
        return GQAC_OK;
    for (int axis = 0; axis < type.rank; axis++)
        count = ir_dim_mul(dims, count, type.dims[axis]);
    if (gqa_per_channel(node, past))
        wanted = ir_dim_mul(dims, gqa_head_size(node),
                            ir_dim_const(dims, ir_attr_int(node, "kv_num_heads")));
    return attention_same_dim(node, count, wanted,
                              past == GQA_PAST_KEY ? "elements of k_scale" : "elements of v_scale",
                              diag);
}

static gqac_status check_dims(const ir_node *node, gqac_diag *diag) {
    const ir_dim *size = gqa_head_size(node);
    const ir_dim *kv = ir_dim_const(op_dims(node), ir_attr_int(node, "kv_num_heads"));
    GQAC_TRY(check_hidden(node, diag));
    for (int i = GQA_PAST_KEY; i <= GQA_PAST_VALUE; i++) {
        GQAC_TRY(want_dim(node, i, 0, op_in_dim(node, GQA_QUERY, 0), diag));
        GQAC_TRY(want_dim(node, i, 1, kv, diag));
        GQAC_TRY(want_dim(node, i, 2, op_in_dim(node, GQA_PAST_KEY, 2), diag));
        GQAC_TRY(want_dim(node, i, 3, cache_width(node), diag));
        GQAC_TRY(check_scales(node, i, diag));
    }
    int64_t half, d;
    if (ir_attr_int(node, "do_rotary") == 1 &&
        ir_dim_is_const(op_in_dim(node, GQA_COS, 1), &half) && ir_dim_is_const(size, &d) &&
        half > d / 2)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "cos_cache has width %lld, which does not fit a head of %lld channels",
                (long long)half, (long long)d);
    for (int i = 0; i < 2; i++)
        GQAC_TRY(want_dim(node, GQA_SIN, i, op_in_dim(node, GQA_COS, i), diag));
    for (int i = GQA_Q_NORM; i <= GQA_K_NORM; i++)
        GQAC_TRY(want_dim(node, i, 0, size, diag));
    return GQAC_OK;
}

gqac_status gqa_infer(ir_node *node, gqac_diag *diag) {
    ir_dims *dims = op_dims(node);
    GQAC_TRY(check_types(node, diag));
    GQAC_TRY(check_dims(node, diag));
    GQAC_TRY(check_extras(node, diag));
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    const ir_dim *batch = op_in_dim(node, GQA_QUERY, 0), *size = gqa_head_size(node);
    gqac_dtype dtype = op_in_type(node, GQA_QUERY).dtype;
    const ir_dim *out[3] = {batch, op_in_dim(node, GQA_QUERY, 1),
                            ir_dim_mul(dims, size, ir_dim_const(dims, q))};
    const ir_dim *present[4] = {batch, ir_dim_const(dims, kv),
                                ir_attr_int(node, "sliding_window_cache") == 1
                                    ? op_in_dim(node, GQA_PAST_KEY, 2)
                                    : attention_capacity(node, GQA_TOTAL, GQA_PAST_KEY),
                                cache_width(node)};
    GQAC_TRY(op_set_type(node, 0, dtype, 3, out, diag));
    GQAC_TRY(op_set_type(node, 1, cache_type(node), 4, present, diag));
    GQAC_TRY(op_set_type(node, 2, cache_type(node), 4, present, diag));
    const ir_dim *qk[4] = {batch, ir_dim_const(dims, q), out[1], NULL};
    if (op_elements(node, GQA_TOTAL, 1, &qk[3]) != 1)
        qk[3] = NULL;
    return op_set_type(node, 3, dtype, 4, qk, diag);
}
