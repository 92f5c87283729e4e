/* com.microsoft.RotaryEmbedding: input [B,S,H*D] or [B,H,S,D], position_ids [1] (start offset) or
 * [B,S], cos_cache, sin_cache [M,R/2] -> output as input. Lowered to rotary. */
#include "ops/build.h"
#include "ops/rotary.h"

enum { X, POSITION_IDS, COS, SIN };

static const ir_attr_spec attrs[] = {
    MS_ROTARY_ATTRS,
    OP_ATTR_FLOAT("scale", 1, "no effect, as in ONNX Runtime"),
    OP_ATTR_INT("is_packed_batching", 0, "only 0"),
    {.name = NULL},
};

gqac_status ms_rotary_verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(rotary_verify(node, diag));
    if (ir_attr_int(node, "rotary_embedding_dim") > 0 && ir_attr_int(node, "num_heads") == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute rotary_embedding_dim needs num_heads");
    if (ir_attr_int(node, "is_packed_batching") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute is_packed_batching is not supported");
    return GQAC_OK;
}

gqac_status ms_rotary_check_types(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(rotary_check_input(node, diag));
    GQAC_TRY(attention_want_rank(node, COS, 2, diag));
    return attention_want_rank(node, SIN, 2, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type x = op_in_type(node, X);
    int64_t half;
    GQAC_TRY(ms_rotary_check_types(node, diag));
    int64_t width = ir_attr_int(node, "rotary_embedding_dim");
    if (width > 0 && ir_dim_is_const(op_in_dim(node, COS, 1), &half) && half * 2 != width)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "cos_cache of width %lld: must be half of rotary_embedding_dim = %lld",
                (long long)half, (long long)width);
    return op_set_type_like(node, 0, x, diag);
}

/* Heads of a 3-D input: num_heads, else as many as the tables' full width allows. */
static int64_t heads_of(const ir_node *node) {
    int64_t heads = ir_attr_int(node, "num_heads"), hidden, half;
    if (heads > 0)
        return heads;
    if (ir_dim_is_const(op_in_dim(node, X, 2), &hidden) &&
        ir_dim_is_const(op_in_dim(node, COS, 1), &half) && half > 0 && hidden % (2 * half) == 0)
        return hidden / (2 * half);
    return 0;
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    int rank = op_in_type(node, X).rank;
    int64_t heads = rank == 3 ? heads_of(node) : 1;
    ir_value *x = ir_node_input(node, X);
    if (rank < 0 || heads < 1)
        op_refuse(b, node, "the rank of the input or the number of heads is not known");
    if (rank == 3)
        x = OP_BUILD(b, "split_heads", .in = {x}, .ints = {{"q", heads}});
    x = OP_BUILD(b, "rotary",
                 .in = {x, ir_node_input(node, COS), ir_node_input(node, SIN), NULL, NULL,
                        ir_node_input(node, POSITION_IDS)},
                 .of = node, .same = {"interleaved"});
    results[0] = rank == 3 ? OP_BUILD(b, "merge_heads", .in = {x}) : x;
}

const gqac_op gqac_op_ms_rotary_embedding = {
    .schema = {.name = "RotaryEmbedding",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "input position_ids cos_cache sin_cache",
               .outputs = "output",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_LOCAL,
               .doc = "rotary embedding of [B,S,H*D] or [B,H,S,D] at position_ids"},
    .infer = infer,
    .verify = ms_rotary_verify,
    .expand = expand,
};
