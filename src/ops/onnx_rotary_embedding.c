/* RotaryEmbedding of the standard (opset 23): X [B,S,H*D] or [B,H,S,D] -> Y as X.
 *   with position_ids [B,S]: cos_cache, sin_cache [M,R/2], read at the positions
 *   without: cos_cache, sin_cache [B,S,R/2] hold the row of each token
 * Lowered to rotary; gathered tables are one table of B*S rows, read in order. */
#include "ops/build.h"
#include "ops/rotary.h"

enum { X, COS, SIN, POSITION_IDS };

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("interleaved", 0, "1: pairs are neighbours, 0: half a head apart"),
    OP_ATTR_INT("num_heads", 0, "heads of a 3-D input"),
    OP_ATTR_INT("rotary_embedding_dim", 0, "channels that are rotated; 0: all"),
    {.name = NULL},
};

static const ir_dim *head_size(const ir_node *node) {
    int64_t heads = ir_attr_int(node, "num_heads");
    int rank = op_in_type(node, X).rank;
    if (rank == 4)
        return op_in_dim(node, X, 3);
    if (rank != 3 || heads < 1)
        return NULL;
    return ir_dim_div_exact(op_dims(node), op_in_dim(node, X, 2),
                            ir_dim_const(op_dims(node), heads));
}

static gqac_status check_width(const ir_node *node, gqac_diag *diag) {
    int64_t width = ir_attr_int(node, "rotary_embedding_dim"), half, size;
    bool known = ir_dim_is_const(head_size(node), &size);
    if (width == 0 && known)
        width = size;
    if (known && width > size)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute rotary_embedding_dim = %lld does not fit a head of %lld channels",
                (long long)width, (long long)size);
    for (int i = COS; i <= SIN && width > 0; i++)
        if (ir_dim_is_const(op_in_dim(node, i, -1), &half) && half != width / 2)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "%s has width %lld, which does not fit %lld channels that are rotated",
                    i == COS ? "cos_cache" : "sin_cache", (long long)half, (long long)width);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type x = op_in_type(node, X);
    int table = ir_node_input(node, POSITION_IDS) ? 2 : 3;
    GQAC_TRY(rotary_check_input(node, diag));
    if (x.rank == 3 && ir_attr_int(node, "num_heads") < 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "a 3-D input needs the attribute num_heads");
    GQAC_TRY(op_check_same(node, COS, X, diag));
    GQAC_TRY(op_check_same(node, SIN, X, diag));
    GQAC_TRY(attention_want_rank(node, COS, table, diag));
    GQAC_TRY(attention_want_rank(node, SIN, table, diag));
    GQAC_TRY(attention_want_rank(node, POSITION_IDS, 2, diag));
    GQAC_TRY(op_check_dtype(node, POSITION_IDS, OP_INDICES, diag));
    GQAC_TRY(check_width(node, diag));
    return op_set_type_like(node, 0, x, diag);
}

/* ---- expand -------------------------------------------------------------- */

/* [B,S,R/2] to [B*S,R/2]. */
static ir_value *as_table(ir_builder *b, const ir_node *node, int input) {
    int64_t half = 0;
    if (!ir_dim_is_const(op_in_dim(node, input, 2), &half))
        op_refuse(b, node, "the width of the gathered tables is not constant");
    return OP_RESHAPE(b, ir_node_input(node, input), -1, half);
}

/* 0 .. B*S-1 in the shape [B,S] of the first axes of gathered tables. */
static ir_value *own_rows(ir_builder *b, ir_value *tables) {
    ir_value *shape = op_build_lengths(b, tables, 0, 2);
    ir_value *product = OP_BUILD(b, "ReduceProd", .in = {shape}, .ints = {{"keepdims", 0}});
    ir_value *range = OP_BUILD(b, "Range", .in = {ir_build_i64(b, 0), product, ir_build_i64(b, 1)});
    return OP_BUILD(b, "Reshape", .in = {range, shape});
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    int rank = op_in_type(node, X).rank;
    ir_value *x = ir_node_input(node, X), *cos = ir_node_input(node, COS);
    ir_value *sin = ir_node_input(node, SIN), *ids = ir_node_input(node, POSITION_IDS);
    if (rank < 0)
        op_refuse(b, node, "the rank of the input is not known");
    if (!ids) {
        ids = own_rows(b, cos);
        cos = as_table(b, node, COS);
        sin = as_table(b, node, SIN);
    }
    if (rank == 3)
        x = OP_BUILD(b, "split_heads", .in = {x}, .ints = {{"q", ir_attr_int(node, "num_heads")}});
    x = OP_BUILD(b, "rotary", .in = {x, cos, sin, NULL, NULL, ids}, .of = node,
                 .same = {"interleaved"});
    results[0] = rank == 3 ? OP_BUILD(b, "merge_heads", .in = {x}) : x;
}

const gqac_op gqac_op_onnx_rotary_embedding = {
    .schema = {.name = "RotaryEmbedding",
               .domain = "",
               .since = 23,
               .introduced = 23,
               .inputs = "X cos_cache sin_cache position_ids?",
               .outputs = "Y",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_LOCAL,
               .doc = "rotary embedding of [B,S,H*D] or [B,H,S,D] by tables or gathered rows"},
    .infer = infer,
    .verify = rotary_verify,
    .expand = expand,
};
