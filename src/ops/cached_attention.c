/* y [1,Hq*D] = attention of one query q [1,Hq*D] over the rows 0 .. kv_pos of k, v [M,Hkv*D]: the
 * row of its own token is among them (it was written before), rows behind it are never read. Query
 * head h reads key/value head h / G. kv_pos is the row of the token, i32 or u32. Becomes attention.
 */
#include "ops/attention.h"

#include <math.h>

enum { Q, K, V, POS };

static const ir_attr_spec attrs[] = {
    {"num_heads", IR_ATTR_INT, .required = true, .doc = "query heads Hq"},
    {"kv_num_heads", IR_ATTR_INT, .required = true, .doc = "key/value heads Hkv"},
    {"scale", IR_ATTR_FLOAT, .fallback = {.set = true, .f = 0},
     .doc = "factor of the scores; 0: 1/sqrt(D)"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    if (q < 1 || kv < 1 || q > INT32_MAX || q % kv != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld query heads over %lld key/value heads",
                (long long)q, (long long)kv);
    if (!isfinite(ir_attr_float(node, "scale")))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "scale is not finite");
    return GQAC_OK;
}

/* Elements of a head, from the columns of an input; NULL when not known. */
static const ir_dim *size_of(const ir_node *node, int input, const char *heads) {
    const ir_dim *width = op_in_dim(node, input, 1);
    return width ? ir_dim_div_exact(op_dims(node), width,
                                    ir_dim_const(op_dims(node), ir_attr_int(node, heads)))
                 : NULL;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    int64_t width;
    for (int i = Q; i <= V; i++) {
        int64_t heads = ir_attr_int(node, i == Q ? "num_heads" : "kv_num_heads");
        GQAC_TRY(attention_want_rank(node, i, 2, diag));
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
        GQAC_TRY(op_check_same(node, Q, i, diag));
        if (ir_dim_is_const(op_in_dim(node, i, 1), &width) && width % heads != 0)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld columns over %lld heads",
                    (long long)width, (long long)heads);
    }
    GQAC_TRY(op_check_dtype(node, POS, OP_BIT(I32) | OP_BIT(U32), diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, Q, 0), ir_dim_const(op_dims(node), 1),
                                "rows of q", diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, V, 0), op_in_dim(node, K, 0),
                                "rows of the values", diag));
    GQAC_TRY(attention_same_dim(node, size_of(node, K, "kv_num_heads"),
                                size_of(node, Q, "num_heads"), "head size of the keys", diag));
    const ir_dim *dims[2] = {
        ir_dim_const(op_dims(node), 1),
        ir_dim_mul(op_dims(node), size_of(node, V, "kv_num_heads"),
                   ir_dim_const(op_dims(node), ir_attr_int(node, "num_heads")))};
    return op_set_type(node, 0, op_in_type(node, Q).dtype, 2, dims, diag);
}

/* x [R,heads*D] as [1,heads,R,D]. */
static ir_value *heads_of(ir_builder *b, const ir_node *node, int input, const char *heads) {
    ir_value *in[2] = {ir_node_input(node, input), ir_build_i64s(b, 1, (int64_t[]){0})};
    ir_value *x = op_build1(b, "", "Unsqueeze", 2, in);
    ir_node *split = op_build(b, "gqac", "split_heads", 1, &x, 1);
    if (split)
        ir_attr_set_int(split, "q", ir_attr_int(node, heads));
    return ir_build_result(b, split, 0);
}

/* An integer of one element as i32 [1]; a u32 beyond i32 becomes negative, which attention refuses.
 */
static ir_value *length(ir_builder *b, ir_value *x) {
    ir_node *cast = op_build(b, "", "Cast", 1, &x, 1);
    if (cast)
        ir_attr_set_dtype(cast, "to", GQAC_I32);
    ir_value *in[2] = {ir_build_result(b, cast, 0), ir_build_i64s(b, 1, (int64_t[]){1})};
    return op_build1(b, "", "Reshape", 2, in);
}

static float scale_of(ir_builder *b, const ir_node *node) {
    float scale = ir_attr_float(node, "scale");
    int64_t size;
    if (scale != 0.0f)
        return scale;
    if (ir_dim_is_const(size_of(node, Q, "num_heads"), &size) && size > 0)
        return 1.0f / sqrtf((float)size);
    if (b->status == GQAC_OK)
        b->status = op_fail(node, b->diag, GQAC_UNSUPPORTED,
                            "the head size is not constant and there is no scale");
    return 1.0f;
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    float scale = scale_of(b, node);
    ir_value *in[5] = {heads_of(b, node, Q, "num_heads"), heads_of(b, node, K, "kv_num_heads"),
                       heads_of(b, node, V, "kv_num_heads"), length(b, ir_node_input(node, POS)),
                       length(b, ir_build_i64(b, 1))};
    ir_node *attention = op_build(b, "gqac", "attention", 5, in, 1);
    if (attention)
        ir_attr_set_float(attention, "scale", scale);
    ir_value *out[2] = {ir_build_result(b, attention, 0), ir_build_i64s(b, 1, (int64_t[]){0})};
    results[0] = op_build1(b, "", "Squeeze", 2, out);
}

const gqac_op gqac_op_cached_attention = {
    .schema = {.name = "cached_attention",
               .domain = "gqac",
               .since = 1,
               .inputs = "q k_cache v_cache kv_pos",
               .outputs = "y",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_STATE,
               .doc = "attention of one query [1,Hq*D] over the rows 0 .. kv_pos of [M,Hkv*D]"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
};
