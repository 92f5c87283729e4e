/* com.microsoft.EmbedLayerNormalization: LayerNormalization of word + position (+ segment)
 * embeddings; mask_index is the number of words that the mask keeps. Becomes Gather, Add,
 * LayerNormalization and ReduceSum. Without position_ids, positions count from 0 in each call, so a
 * row depends on its index in the call. Source: ONNX Runtime contrib operators. */
#include "ops/build.h"
#include "ops/shared.h"

enum { IDS, SEGMENTS, WORD, POSITION, SEGMENT, GAMMA, BETA, MASK, POSITION_IDS };

static const ir_attr_spec attrs[] = {
    OP_ATTR_FLOAT("epsilon", 1e-12f, "added to the variance"),
    {.name = "mask_index_type", .kind = IR_ATTR_INT, .doc = "only for type inference"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    if (!ir_node_input(node, SEGMENTS) != !ir_node_input(node, SEGMENT))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "segment_ids and segment_embedding must be both present or both absent");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_type word = op_in_type(node, WORD);
    GQAC_TRY(op_check_dtype(node, IDS, OP_INDICES, diag));
    GQAC_TRY(op_check_dtype(node, WORD, OP_FLOATS, diag));
    static const int matrices[] = {IDS, SEGMENTS, WORD, POSITION, SEGMENT, MASK};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        GQAC_TRY(op_check_rank(node, matrices[i], 2, 2, diag));
    GQAC_TRY(op_check_rank(node, POSITION_IDS, 1, 2, diag));
    const ir_dim *dims[3] = {op_in_dim(node, IDS, 0), op_in_dim(node, IDS, 1),
                             op_in_dim(node, WORD, 1)};
    GQAC_TRY(op_set_type(node, 0, word.dtype, 3, dims, diag));
    GQAC_TRY(op_set_type(node, 1, GQAC_I32, 1, dims, diag));
    return op_set_type(node, 2, word.dtype, 3, dims, diag);
}

static ir_value *gather(ir_builder *b, ir_value *table, ir_value *ids) {
    return OP_BUILD(b, "Gather", .in = {table, ids});
}

/* Positions 0, 1, ... S-1. */
static ir_value *positions(ir_builder *b, ir_value *ids) {
    ir_value *shape = OP_BUILD(b, "Shape", .in = {ids});
    ir_value *tokens = gather(b, shape, ir_build_i64(b, 1));
    return OP_BUILD(b, "Range", .in = {ir_build_i64(b, 0), tokens, ir_build_i64(b, 1)});
}

/* Words that the mask keeps; zeros without a mask. */
static ir_value *mask_index(ir_builder *b, ir_node *node) {
    ir_value *mask = ir_node_input(node, MASK), *ids = ir_node_input(node, IDS);
    ir_value *axes = OP_I64S(b, 1);
    if (!mask)
        mask = OP_BUILD(b, "Sub", .in = {ids, ids});
    ir_value *count = OP_BUILD(b, "ReduceSum", .in = {mask, axes}, .ints = {{"keepdims", 0}});
    return op_build_cast(b, count, GQAC_I32);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    ir_value *ids = ir_node_input(node, IDS), *where = ir_node_input(node, POSITION_IDS);
    (void)options;
    if (!where)
        where = positions(b, ids);
    ir_value *position = gather(b, ir_node_input(node, POSITION), where);
    ir_value *word = gather(b, ir_node_input(node, WORD), ids);
    ir_value *sum = OP_BUILD(b, "Add", .in = {word, position});
    if (ir_node_input(node, SEGMENTS))
        sum = OP_BUILD(
            b, "Add",
            .in = {sum, gather(b, ir_node_input(node, SEGMENT), ir_node_input(node, SEGMENTS))});
    results[0] = OP_BUILD(b, "LayerNormalization",
                          .in = {sum, ir_node_input(node, GAMMA), ir_node_input(node, BETA)},
                          .of = node, .same = {"epsilon"});
    if (ir_node_output(node, 1))
        results[1] = mask_index(b, node);
    if (ir_node_output(node, 2))
        results[2] = sum;
}

static bool mixes(const ir_node *node) {
    return !ir_node_input(node, POSITION_IDS) || ir_node_output(node, 1);
}

const gqac_op gqac_op_embed_layer_normalization = {
    .schema = {.name = "EmbedLayerNormalization",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "input_ids segment_ids? word_embedding position_embedding "
                         "segment_embedding? gamma beta mask? position_ids?",
               .outputs = "output mask_index? embedding_sum?",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "LayerNormalization of word + position + segment embeddings"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
    .mixes = mixes,
};
