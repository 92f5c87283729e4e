/* y [1,Hq*D] = attention of one query q [1,Hq*D] over the rows 0 .. kv_pos of k, v [M,Hkv*D]: the
 * row of the query's own token is included (it has been written), later rows are never read. Query
 * head h reads key/value head h / G. kv_pos is the row of the token, i32 or u32. Becomes
 * attention. */
#include "ops/attention.h"
#include "ops/build.h"

#include <math.h>

enum { Q, K, V, POS };

static const ir_attr_spec attrs[] = {
    {"num_heads", IR_ATTR_INT, .required = true, .doc = "query heads Hq"},
    {"kv_num_heads", IR_ATTR_INT, .required = true, .doc = "key/value heads Hkv"},
    OP_ATTR_FLOAT("scale", 0, "factor of the scores; 0: 1/sqrt(D)"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    if (q < 1 || kv < 1 || q > INT32_MAX || q % kv != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "%lld query heads are not a multiple of %lld key/value heads", (long long)q,
                (long long)kv);
    return op_check_float(node, "scale", true, diag);
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
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "%lld columns cannot be divided into %lld heads", (long long)width,
                    (long long)heads);
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
    ir_value *x = OP_BUILD(b, "Unsqueeze", .in = {ir_node_input(node, input), OP_I64S(b, 0)});
    return OP_BUILD(b, "split_heads", .in = {x}, .ints = {{"q", ir_attr_int(node, heads)}});
}

/* An integer of one element as i32 [1]; a u32 beyond i32 becomes negative, which attention refuses.
 */
static ir_value *length(ir_builder *b, ir_value *x) {
    return OP_RESHAPE(b, op_build_cast(b, x, GQAC_I32), 1);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    const float scale = attention_scale(b, node, size_of(node, Q, "num_heads"));
    ir_value *y =
        OP_BUILD(b, "attention",
                 .in = {heads_of(b, node, Q, "num_heads"), heads_of(b, node, K, "kv_num_heads"),
                        heads_of(b, node, V, "kv_num_heads"), length(b, ir_node_input(node, POS)),
                        length(b, ir_build_i64(b, 1))},
                 .floats = {{"scale", scale}});
    results[0] = OP_BUILD(b, "Squeeze", .in = {y, OP_I64S(b, 0)});
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
