/* Attention of the standard (opset 23 to 25).
 *   Q [B,S,Hq*D], K [B,L,Hkv*D], V [B,L,Hkv*Dv], or [B,H,S,D] each; past [B,Hkv,P,D]
 *   -> Y as Q, present [B,Hkv,P+L,D], qk_matmul_output [B,Hq,S,P+L]
 * Always lowered, to attend. A query's own position is P + s, or nonpad_kv_seqlen[b] - S + s where
 * the model writes its cache itself. The scale is applied once, to the scores. */
#include "ops/attention.h"
#include "ops/build.h"

#include <math.h>

enum { Q, K, V, MASK, PAST_KEY, PAST_VALUE, NONPAD, N_INPUTS };

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("is_causal", 0, "1: a query sees no key after its own position"),
    {"q_num_heads", IR_ATTR_INT, .doc = "query heads Hq of 3-D inputs"},
    {"kv_num_heads", IR_ATTR_INT, .doc = "key/value heads Hkv of 3-D inputs"},
    {"scale", IR_ATTR_FLOAT, .doc = "factor of the scores; 1/sqrt(D) when absent"},
    OP_ATTR_FLOAT("softcap", 0, "s becomes softcap * tanh(s / softcap); 0: off"),
    {"softmax_precision", IR_ATTR_INT,
     .doc = "1, 10 or 16 (f32, f16, bf16); the softmax is computed in f32"},
    OP_ATTR_INT("qk_matmul_output_mode", 0,
                "0 scores, 1 after softcap, 2 after the mask, 3 probabilities"),
    OP_ATTR_INT("left_window_size", -1, "keys before its own that a query sees; -1: all"),
    OP_ATTR_INT("right_window_size", -1, "keys after its own that a query sees; -1: all"),
    {.name = NULL},
};

static bool has(const ir_node *node, int input) {
    return ir_node_input(node, input) != NULL;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    int64_t precision = ir_attr_int(node, "softmax_precision");
    GQAC_TRY(op_check_int(node, "is_causal", 0, 1, diag));
    GQAC_TRY(op_check_int(node, "q_num_heads", 1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "kv_num_heads", 1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "qk_matmul_output_mode", 0, 3, diag));
    GQAC_TRY(op_check_int(node, "left_window_size", -1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "right_window_size", -1, INT32_MAX, diag));
    GQAC_TRY(op_check_float(node, "softcap", false, diag));
    GQAC_TRY(op_check_float(node, "scale", true, diag));
    if (ir_attr_is_set(node, "softmax_precision") && precision != 1 && precision != 10 &&
        precision != 16)
        OP_FAIL(node, diag, precision == 11 ? GQAC_UNSUPPORTED : GQAC_INVALID_MODEL,
                "attribute softmax_precision = %lld: only 1, 10 and 16 (f32, f16, bf16) are "
                "supported",
                (long long)precision);
    if (has(node, PAST_KEY) != has(node, PAST_VALUE))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "inputs past_key and past_value must be both present or both absent");
    if (has(node, PAST_KEY) && has(node, NONPAD))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "input nonpad_kv_seqlen is for a cache that the model writes: past_key and "
                "past_value must be absent");
    return GQAC_OK;
}

/* ---- infer --------------------------------------------------------------- */

/* Axes of input i as [B,H,S,D]; entries are NULL when not known. */
static void as_heads(const ir_node *node, int i, const ir_dim *dims[4]) {
    int rank = op_in_type(node, i).rank;
    for (int axis = 0; axis < 4; axis++)
        dims[axis] = rank == 4 ? op_in_dim(node, i, axis) : NULL;
    if (rank != 3)
        return;
    const char *name = i == Q ? "q_num_heads" : "kv_num_heads";
    if (ir_attr_is_set(node, name))
        dims[1] = ir_dim_const(op_dims(node), ir_attr_int(node, name));
    dims[0] = op_in_dim(node, i, 0);
    dims[2] = op_in_dim(node, i, 1);
    dims[3] = dims[1] ? ir_dim_div_exact(op_dims(node), op_in_dim(node, i, 2), dims[1]) : NULL;
}

static gqac_status check_types(const ir_node *node, gqac_diag *diag) {
    static const int same[][2] = {{K, Q}, {PAST_KEY, K}, {PAST_VALUE, V}};
    int64_t width;
    for (int i = Q; i <= V; i++) {
        int rank = op_in_type(node, i).rank;
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
        if (rank >= 0 && rank != 3 && rank != 4)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "an input has rank %d: must be 3 or 4", rank);
        const char *name = i == Q ? "q_num_heads" : "kv_num_heads";
        if (rank == 3 && !ir_attr_is_set(node, name))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "a 3-D input needs the attribute %s", name);
        if (rank == 3 && ir_dim_is_const(op_in_dim(node, i, 2), &width) &&
            width % ir_attr_int(node, name) != 0)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "%lld columns cannot be divided into %s = %lld heads", (long long)width, name,
                    (long long)ir_attr_int(node, name));
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        GQAC_TRY(op_check_same(node, same[i][0], same[i][1], diag));
    GQAC_TRY(op_check_dtype(node, MASK, OP_FLOATS | OP_BIT(BOOL), diag));
    GQAC_TRY(op_check_dtype(node, NONPAD, OP_INDICES, diag));
    GQAC_TRY(attention_want_rank(node, PAST_KEY, 4, diag));
    GQAC_TRY(attention_want_rank(node, PAST_VALUE, 4, diag));
    return attention_want_rank(node, NONPAD, 1, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_dims *dims = op_dims(node);
    const ir_dim *q[4], *kv[2][4];
    GQAC_TRY(check_types(node, diag));
    as_heads(node, Q, q);
    for (int i = 0; i < 2; i++) {
        as_heads(node, K + i, kv[i]);
        if (has(node, PAST_KEY + i))
            kv[i][2] = ir_dim_add(dims, kv[i][2], op_in_dim(node, PAST_KEY + i, 2));
        GQAC_TRY(op_set_type(node, 1 + i, op_in_type(node, K + i).dtype, 4, kv[i], diag));
    }
    GQAC_TRY(attention_same_dim(node, kv[0][3], q[3], "head size of K", diag));
    GQAC_TRY(attention_same_dim(node, kv[1][2], kv[0][2], "rows of V", diag));
    const ir_dim *flat[3] = {q[0], q[2], ir_dim_mul(dims, q[1], kv[1][3])};
    const ir_dim *heads[4] = {q[0], q[1], q[2], kv[1][3]}, *qk[4] = {q[0], q[1], q[2], kv[0][2]};
    int rank = op_in_type(node, Q).rank;
    gqac_dtype dtype = op_in_type(node, Q).dtype;
    GQAC_TRY(op_set_type(node, 0, dtype, rank, rank == 3 ? flat : heads, diag));
    return op_set_type(node, 3, dtype, 4, qk, diag);
}

/* ---- expand -------------------------------------------------------------- */

static ir_value *heads_of(ir_builder *b, const ir_node *node, int i) {
    const int rank = op_in_type(node, i).rank;
    if (rank < 0)
        op_refuse(b, node, "the rank of Q, K or V is not known");
    if (rank != 3)
        return ir_node_input(node, i);
    return OP_BUILD(b, "split_heads", .in = {ir_node_input(node, i)},
                    .ints = {{"q", ir_attr_int(node, i == Q ? "q_num_heads" : "kv_num_heads")}});
}

static ir_value *cast(ir_builder *b, ir_value *x, gqac_dtype from, gqac_dtype to) {
    return from == to ? x : op_build_cast(b, x, to);
}

static float scale_of(const ir_node *node) {
    const ir_dim *q[4];
    as_heads(node, Q, q);
    return ir_attr_is_set(node, "scale") ? ir_attr_float(node, "scale")
                                         : attention_scores_scale(node, q[3]);
}

/* y [B,S,H*D] with the heads of q [B,H,S,D]. */
static ir_value *as_heads_of(ir_builder *b, ir_value *y, ir_value *q) {
    int64_t heads;
    if (ir_dim_is_const(q->type.dims[1], &heads))
        return OP_BUILD(b, "split_heads", .in = {y}, .ints = {{"q", heads}});
    ir_value *first = OP_I64S(b, 0, 0), *number = op_build_lengths(b, q, 1, 1);
    ir_value *rest = OP_I64S(b, -1);
    ir_value *to = op_build_concat(b, 0, 3, (ir_value *[]){first, number, rest});
    ir_value *split = OP_BUILD(b, "Reshape", .in = {y, to});
    return OP_TRANSPOSE(b, split, 0, 2, 1, 3);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    const gqac_dtype dtype = op_in_type(node, Q).dtype;
    const bool wants_qk = ir_node_output(node, 3) != NULL;
    const int64_t right = ir_attr_int(node, "right_window_size");
    ir_value *nonpad = ir_node_input(node, NONPAD), *lo, *hi, *y, *qk;
    const float scale = scale_of(node);
    ir_value *q = heads_of(b, node, Q);
    ir_value *k = attention_with_past(b, ir_node_input(node, PAST_KEY), heads_of(b, node, K));
    ir_value *v = attention_with_past(b, ir_node_input(node, PAST_VALUE), heads_of(b, node, V));
    OP_BUILD(b, "key_range", .in = {q, k, ir_node_input(node, PAST_KEY), nonpad},
             .ints = {{"left", ir_attr_int(node, "left_window_size")},
                      {"right", ir_attr_int(node, "is_causal") ? 0 : right},
                      {"align_end", nonpad != NULL}},
             .out = {&lo, &hi});
    OP_BUILD(b, "attend", .in = {q, k, v, lo, hi, ir_node_input(node, MASK)},
             .floats = {{attention_scale_name(scale), scale},
                        {"softcap", ir_attr_float(node, "softcap")}},
             .ints = {{"qk_stage", ir_attr_int(node, "qk_matmul_output_mode")}},
             .out = {&y, wants_qk ? &qk : NULL});
    results[0] = cast(b, y, op_in_type(node, V).dtype, dtype);
    if (op_in_type(node, Q).rank == 4)
        results[0] = as_heads_of(b, results[0], q);
    if (node->n_outputs > 1)
        results[1] = k;
    if (node->n_outputs > 2)
        results[2] = v;
    if (wants_qk)
        results[3] = cast(b, qk, GQAC_F32, dtype);
}

/* Windows over later keys have no such form, unless causality hides these. */
static void take_apart(ir_builder *b, const ir_node *node, ir_value *positions,
                       const op_options *options, op_parts *parts) {
    ir_value *x[3];
    (void)positions, (void)options;
    const int64_t left = ir_attr_int(node, "left_window_size");
    const int64_t right = ir_attr_int(node, "right_window_size");
    if (has(node, NONPAD))
        op_refuse(b, node,
                  "the model writes its cache itself (nonpad_kv_seqlen), which is not supported");
    if (!attention_scale_name(scale_of(node)))
        op_refuse(b, node, "the head size is not constant, and the attribute scale is absent");
    if (ir_node_output(node, 3))
        op_refuse(
            b, node,
            "output qk_matmul_output is not supported: it has a column for each key of one call");
    for (int i = Q; i <= V; i++) {
        const ir_dim *dims[4];
        const char *heads = i == Q ? "q_num_heads" : "kv_num_heads";
        x[i] = ir_node_input(node, i);
        as_heads(node, i, dims);
        if (op_in_type(node, i).rank == 3)
            x[i] = attention_heads(b, node, x[i], ir_attr_int(node, heads), dims[3]);
    }
    *parts = (op_parts){.q = x[Q],
                        .k = x[K],
                        .v = x[V],
                        .scale = scale_of(node),
                        .softcap = ir_attr_float(node, "softcap"),
                        .causal = ir_attr_int(node, "is_causal") == 1 || right == 0,
                        .window = left < 0 ? -1 : left + 1};
}

/* Without a cache the keys are those of the call. */
static bool mixes(const ir_node *node) {
    if (!has(node, PAST_KEY) && !has(node, NONPAD))
        return true;
    return !ir_attr_int(node, "is_causal") && ir_attr_int(node, "right_window_size") != 0;
}

const gqac_op gqac_op_onnx_attention = {
    .schema = {.name = "Attention",
               .domain = "",
               .since = 23,
               .introduced = 23,
               .inputs = "Q K V attn_mask? past_key? past_value? nonpad_kv_seqlen?",
               .outputs = "Y present_key? present_value? qk_matmul_output?",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_STATE,
               .doc = "attention of [B,S,H*D] or [B,H,S,D] with mask, past and windows"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .take_apart = take_apart,
    .mixes = mixes,
};
