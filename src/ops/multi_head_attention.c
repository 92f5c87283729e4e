/* com.microsoft.MultiHeadAttention: attention with as many key heads as query heads.
 *   query [B,S,N*D], key [B,L,N*D], value [B,L,N*Dv]
 *   query [B,S,N*D], key [B,N,L,D], value [B,N,L,Dv]    cross attention, keys computed before
 *   query [B,S,N*D], key [B,L,N,2,D]                    packed keys and values
 *   query [B,S,N,3,D]                                   packed
 *   -> output [B,S,N*Dv], present [B,N,P+L,D], qk [B,N,S,P+L] (scores before softmax)
 * With past_sequence_length P past and present are buffers [B,N,M,D] of which P rows are valid.
 * With unidirectional 1 query s has position P + s; without a past, the S queries are the last of
 * the L keys, as in ONNX Runtime's CUDA kernels (its CPU kernel agrees for S = 1 and S = L only).
 * bias [Dq+Dk+Dv] is added to query, key and value; to 4-D keys and values it is not. Lowered. */
#include "ops/build.h"
#include "ops/multi_head.h"

enum {
    QUERY,
    KEY,
    VALUE,
    BIAS,
    PADDING,
    ATTENTION_BIAS,
    PAST_KEY,
    PAST_VALUE,
    PAST_LENGTH,
    CACHE_INDIRECTION,
    N_INPUTS
};

static const ir_attr_spec attrs[] = {
    {"num_heads", IR_ATTR_INT, .required = true, .doc = "heads N"},
    OP_ATTR_FLOAT("mask_filter_value", -10000, "added to the scores of padding"),
    OP_ATTR_FLOAT("scale", 0, "factor of the scores; 0: 1/sqrt(D)"),
    OP_ATTR_INT("unidirectional", 0, "1: a query sees no key after its own position"),
    {.name = NULL},
};

static bool has(const ir_node *node, int input) {
    return ir_node_input(node, input) != NULL;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(multi_head_verify(node, diag));
    if (has(node, VALUE) && !has(node, KEY))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the node has the input value without key");
    if (has(node, PAST_KEY) != has(node, PAST_VALUE))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "inputs past_key and past_value must be both present or both absent");
    if (has(node, PAST_LENGTH) && !has(node, PAST_KEY))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "the node has the input past_sequence_length without past_key");
    if (has(node, CACHE_INDIRECTION))
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "input cache_indirection is not supported");
    return GQAC_OK;
}

/* ---- infer --------------------------------------------------------------- */

typedef struct layout {
    const ir_dim *batch, *rows, *keys, *size, *v_size; /* keys: of this call, L */
} layout;

static const ir_dim *per_head(const ir_node *node, const ir_dim *width) {
    const ir_dim *heads = ir_dim_const(op_dims(node), ir_attr_int(node, "num_heads"));
    return width ? ir_dim_div_exact(op_dims(node), width, heads) : NULL;
}

static layout layout_of(const ir_node *node) {
    layout l = {.batch = op_in_dim(node, QUERY, 0), .rows = op_in_dim(node, QUERY, 1)};
    if (op_in_type(node, QUERY).rank == 5) {
        l.keys = l.rows;
        l.size = l.v_size = op_in_dim(node, QUERY, 4);
        return l;
    }
    if (op_in_type(node, QUERY).rank == 3)
        l.size = per_head(node, op_in_dim(node, QUERY, 2));
    switch (op_in_type(node, KEY).rank) {
    case 3:
        l.keys = op_in_dim(node, KEY, 1);
        if (op_in_type(node, VALUE).rank == 3)
            l.v_size = per_head(node, op_in_dim(node, VALUE, 2));
        break;
    case 4:
        l.keys = op_in_dim(node, KEY, 2);
        l.v_size = op_in_dim(node, VALUE, 3);
        break;
    case 5:
        l.keys = op_in_dim(node, KEY, 1);
        l.v_size = op_in_dim(node, KEY, 4);
        break;
    default:
        break;
    }
    return l;
}

static gqac_status check_layout(const ir_node *node, gqac_diag *diag) {
    int q = op_in_type(node, QUERY).rank, k = op_in_type(node, KEY).rank;
    int v = op_in_type(node, VALUE).rank;
    if (q >= 0 && q != 3 && q != 5)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "query has rank %d: must be 3 or 5", q);
    if ((q == 3 && !has(node, KEY)) || (q == 5 && has(node, KEY)))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "query of rank %d %s key", q,
                q == 3 ? "needs a" : "contains its own");
    if (k >= 0 && (k < 3 || k > 5 || (k == 5) == has(node, VALUE)))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "key cannot have rank %d %s value", k,
                has(node, VALUE) ? "with a" : "without");
    if (k >= 0 && v >= 0 && k != v)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "key has rank %d, but value has rank %d", k, v);
    if (k == 4 && has(node, PAST_KEY))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "4-D keys and values are complete: past_key must be absent");
    if (q == 5)
        GQAC_TRY(attention_same_dim(node, op_in_dim(node, QUERY, 3), ir_dim_const(op_dims(node), 3),
                                    "packed query", diag));
    if (k == 5)
        GQAC_TRY(attention_same_dim(node, op_in_dim(node, KEY, 3), ir_dim_const(op_dims(node), 2),
                                    "packed key", diag));
    return GQAC_OK;
}

static gqac_status check_types(const ir_node *node, gqac_diag *diag) {
    static const int like_query[] = {KEY, VALUE, BIAS, ATTENTION_BIAS, PAST_KEY, PAST_VALUE};
    GQAC_TRY(op_check_dtype(node, QUERY, OP_FLOATS, diag));
    for (size_t i = 0; i < sizeof like_query / sizeof *like_query; i++)
        GQAC_TRY(op_check_same(node, like_query[i], QUERY, diag));
    GQAC_TRY(attention_want_dtype(node, PADDING, GQAC_I32, diag));
    GQAC_TRY(attention_want_dtype(node, PAST_LENGTH, GQAC_I32, diag));
    GQAC_TRY(attention_want_rank(node, BIAS, 1, diag));
    GQAC_TRY(attention_want_rank(node, ATTENTION_BIAS, 4, diag));
    GQAC_TRY(attention_want_rank(node, PAST_KEY, 4, diag));
    return attention_want_rank(node, PAST_VALUE, 4, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_dims *dims = op_dims(node);
    int64_t width;
    GQAC_TRY(check_types(node, diag));
    GQAC_TRY(check_layout(node, diag));
    layout l = layout_of(node);
    int64_t heads = ir_attr_int(node, "num_heads");
    if (op_in_type(node, QUERY).rank == 3 && ir_dim_is_const(op_in_dim(node, QUERY, 2), &width) &&
        width % heads != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "query of width %lld cannot be divided into %lld heads", (long long)width,
                (long long)heads);
    const ir_dim *n = ir_dim_const(dims, heads), *keys = l.keys;
    if (has(node, PAST_LENGTH))
        keys = op_in_dim(node, PAST_KEY, 2);
    else if (has(node, PAST_KEY))
        keys = ir_dim_add(dims, keys, op_in_dim(node, PAST_KEY, 2));
    const ir_dim *out[3] = {l.batch, l.rows, ir_dim_mul(dims, n, l.v_size)};
    const ir_dim *present[4] = {l.batch, n, keys, l.size}, *qk[4] = {l.batch, n, l.rows, keys};
    gqac_dtype dtype = op_in_type(node, QUERY).dtype;
    GQAC_TRY(op_set_type(node, 0, dtype, 3, out, diag));
    GQAC_TRY(op_set_type(node, 1, dtype, 4, present, diag));
    present[3] = l.v_size;
    GQAC_TRY(op_set_type(node, 2, dtype, 4, present, diag));
    return op_set_type(node, 3, dtype, 4, qk, diag);
}

/* ---- expand -------------------------------------------------------------- */

/* The parts of bias for query, key and value, each [1,1,N*D]. */
static void split_bias(ir_builder *b, const ir_node *node, const layout *l, ir_value *parts[3]) {
    const ir_dim *sizes[3] = {l->size, l->size, l->v_size};
    int64_t widths[3] = {0}, heads = ir_attr_int(node, "num_heads");
    ir_value *bias = ir_node_input(node, BIAS);
    parts[0] = parts[1] = parts[2] = NULL;
    if (!bias)
        return;
    for (int i = 0; i < 3; i++) {
        if (!ir_dim_is_const(sizes[i], &widths[i]))
            op_refuse(b, node, "a bias needs a head size that is constant");
        widths[i] *= heads;
    }
    OP_BUILD(b, "Split", .in = {bias, ir_build_i64s(b, 3, widths)}, .ints = {{"axis", 0}},
             .out = {&parts[0], &parts[1], &parts[2]});
}

/* x [B,S,N*D] plus its bias, as [B,N,S,D]. */
static ir_value *flat_heads(ir_builder *b, const ir_node *node, ir_value *x, ir_value *bias) {
    if (bias)
        x = OP_BUILD(b, "Add", .in = {x, bias});
    return multi_head_split(b, x, ir_attr_int(node, "num_heads"));
}

/* Part `index` of x [B,S,N,parts,D], as [B,S,N*D] so that the bias fits. */
static ir_value *unpacked(ir_builder *b, ir_value *x, int64_t index) {
    return OP_RESHAPE(b, multi_head_pick(b, x, 3, index), 0, 0, -1);
}

static void read_heads(ir_builder *b, const ir_node *node, ir_value *const bias[3], multi_head *m) {
    ir_value *query = ir_node_input(node, QUERY), *key = ir_node_input(node, KEY);
    ir_value *value = ir_node_input(node, VALUE);
    int q = op_in_type(node, QUERY).rank, k = op_in_type(node, KEY).rank;
    if (q < 0 || (key && k < 0))
        op_refuse(b, node, "the rank of query or key is not known");
    if (q == 5) {
        key = unpacked(b, query, 1);
        value = unpacked(b, query, 2);
        query = unpacked(b, query, 0);
    } else if (k == 5) {
        value = unpacked(b, key, 1);
        key = unpacked(b, key, 0);
    }
    m->q = flat_heads(b, node, query, bias[0]);
    m->k = k == 4 ? key : flat_heads(b, node, key, bias[1]);
    m->v = k == 4 ? value : flat_heads(b, node, value, bias[2]);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    layout l = layout_of(node);
    ir_value *bias[3];
    multi_head m = {.past_k = ir_node_input(node, PAST_KEY),
                    .past_v = ir_node_input(node, PAST_VALUE),
                    .past_rows = ir_node_input(node, PAST_LENGTH),
                    .padding = ir_node_input(node, PADDING),
                    .bias = ir_node_input(node, ATTENTION_BIAS),
                    .scale = attention_scores_scale(node, l.size),
                    .filter = ir_attr_float(node, "mask_filter_value"),
                    .causal = ir_attr_int(node, "unidirectional") == 1,
                    .wants_qk = ir_node_output(node, 3) != NULL};
    m.at_end = m.causal && !m.past_k && (!l.rows || l.rows != l.keys);
    split_bias(b, node, &l, bias);
    read_heads(b, node, bias, &m);
    multi_head_build(b, &m);
    results[0] = m.y;
    if (node->n_outputs > 1)
        results[1] = m.present_k;
    if (node->n_outputs > 2)
        results[2] = m.present_v;
    if (m.wants_qk)
        results[3] = op_build_cast(b, m.qk, op_in_type(node, QUERY).dtype);
}

static void take_apart(ir_builder *b, const ir_node *node, ir_value *positions,
                       const op_options *options, op_parts *parts) {
    const layout l = layout_of(node);
    const ir_dim *sizes[3] = {l.size, l.size, l.v_size};
    ir_value *x[3], *bias[3];
    (void)positions, (void)options;
    if (op_in_type(node, QUERY).rank != 3 || op_in_type(node, KEY).rank != 3)
        op_refuse(b, node, "packed query, key and value are not supported");
    if (ir_node_output(node, 3))
        op_refuse(b, node, "output qk is not supported: it has a column for each key of one call");
    split_bias(b, node, &l, bias);
    for (int i = 0; i < 3; i++) {
        x[i] = ir_node_input(node, i);
        if (bias[i])
            x[i] = OP_BUILD(b, "Add", .in = {x[i], bias[i]});
        x[i] = attention_heads(b, node, x[i], ir_attr_int(node, "num_heads"), sizes[i]);
    }
    *parts = (op_parts){.q = x[0],
                        .k = x[1],
                        .v = x[2],
                        .scale = attention_scale(b, node, l.size),
                        .causal = ir_attr_int(node, "unidirectional") == 1,
                        .window = -1};
}

/* Without a past the keys are those of the call; 4-D keys were computed before it. */
static bool mixes(const ir_node *node) {
    if (op_in_type(node, KEY).rank == 4)
        return false;
    return !has(node, PAST_KEY) || !ir_attr_int(node, "unidirectional");
}

const gqac_op gqac_op_multi_head_attention = {
    .schema = {.name = "MultiHeadAttention",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "query key? value? bias? key_padding_mask? attention_bias? past_key? "
                         "past_value? past_sequence_length? cache_indirection?",
               .outputs = "output present_key? present_value? qk?",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_STATE,
               .doc = "attention of N heads; output [B,S,N*Dv], present [B,N,P+L,D]"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .take_apart = take_apart,
    .mixes = mixes,
};
