/* take_apart of attention ops: builds q, k and v with ONNX ops. */
#include "ops/build.h"
#include "ops/gqa.h"

#include <math.h>
#include <string.h>

float attention_scores_scale(const ir_node *node, const ir_dim *size) {
    const float scale = ir_attr_float(node, "scale");
    int64_t width;
    if (scale != 0.0f)
        return scale;
    return ir_dim_is_const(size, &width) && width > 0 ? 1.0f / sqrtf((float)width) : NAN;
}

const char *attention_scale_name(float scale) {
    return isnan(scale) ? NULL : "scale";
}

float attention_scale(ir_builder *b, const ir_node *node, const ir_dim *size) {
    const float scale = attention_scores_scale(node, size);
    if (isnan(scale))
        op_refuse(b, node, "the head size is not constant, and the attribute scale is absent");
    return scale;
}

ir_value *attention_heads(ir_builder *b, const ir_node *node, ir_value *x, int64_t heads,
                          const ir_dim *size) {
    int64_t width;
    if (!ir_dim_is_const(size, &width) || width < 1) {
        op_refuse(b, node, "the head size is not constant");
        return NULL;
    }
    x = OP_RESHAPE(b, x, 0, 0, heads, width);
    return OP_TRANSPOSE(b, x, 0, 2, 1, 3);
}

ir_value *attention_flatten(ir_builder *b, ir_value *y) {
    ir_value *shape = OP_I64S(b, 0, 0, -1);
    return OP_BUILD(b, "Reshape", .in = {OP_TRANSPOSE(b, y, 0, 2, 1, 3), shape});
}

ir_value *gqa_norm(ir_builder *b, const ir_node *node, ir_value *x, int weight) {
    if (!ir_node_input(node, weight))
        return x;
    return OP_BUILD(b, "SimplifiedLayerNormalization", .in = {x, ir_node_input(node, weight)},
                    .floats = {{"epsilon", ir_attr_float(node, "qk_norm_epsilon")}});
}

/* x [B,N,S,D] rotated by the positions; if the tables are narrower than D/2, the last channels are
 * copied. */
static ir_value *rotate(ir_builder *b, const ir_node *node, ir_value *x, int64_t heads,
                        ir_value *positions) {
    int64_t half = 0, size = 0;
    if (ir_attr_int(node, "do_rotary") != 1)
        return x;
    if (!ir_dim_is_const(op_in_dim(node, GQA_COS, 1), &half) ||
        !ir_dim_is_const(gqa_head_size(node), &size))
        op_refuse(b, node, "the width of cos_cache is not constant");
    return OP_BUILD(
        b, "RotaryEmbedding",
        .in = {x, ir_node_input(node, GQA_COS), ir_node_input(node, GQA_SIN), positions},
        .ints = {{"interleaved", ir_attr_int(node, "rotary_interleaved")},
                 {"num_heads", heads},
                 {2 * half < size ? "rotary_embedding_dim" : NULL, 2 * half}});
}

/* Splits query [B,S,(Hq+2Hkv)*D] into queries, keys and values. */
static void split_packed(ir_builder *b, const ir_node *node, int64_t q, int64_t kv,
                         ir_value *parts[3]) {
    int64_t size = 0;
    if (!ir_dim_is_const(gqa_head_size(node), &size))
        op_refuse(b, node, "the head size is not constant");
    OP_BUILD(b, "Split",
             .in = {ir_node_input(node, GQA_QUERY), OP_I64S(b, q * size, kv * size, kv * size)},
             .ints = {{"axis", 2}}, .out = {&parts[0], &parts[1], &parts[2]});
}

/* True if the operand position_ids is not the graph input of that name. The caller replaces it by
 * its own positions, so whatever the graph computes there would be lost. */
static bool counts_itself(const ir_node *node) {
    const ir_value *ids = ir_node_input(node, GQA_POSITION_IDS);
    return ids && ir_attr_int(node, "do_rotary") == 1 &&
           (ids->def || ids->constant || !ids->name || strcmp(ids->name, "position_ids") != 0);
}

static void refuse_rest(ir_builder *b, const ir_node *node) {
    if (counts_itself(node))
        op_refuse(b, node, "operand position_ids must be the graph input of that name");
    if (ir_node_input(node, GQA_BIAS))
        op_refuse(
            b, node,
            "operand attention_bias is not supported: it has a column for each key of one call");
    if (gqa_code_bits(node))
        op_refuse(b, node, "a quantised cache is not supported");
    if (ir_node_output(node, 3))
        op_refuse(b, node,
                  "output output_qk is not supported: it has a column for each key of one call");
}

void gqa_take_apart(ir_builder *b, const ir_node *node, ir_value *positions,
                    const op_options *options, op_parts *parts) {
    const int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    const ir_dim *size = gqa_head_size(node);
    ir_value *in[3] = {ir_node_input(node, GQA_QUERY), ir_node_input(node, GQA_KEY),
                       ir_node_input(node, GQA_VALUE)};
    refuse_rest(b, node);
    if (!in[1])
        split_packed(b, node, q, kv, in);
    parts->q = gqa_norm(b, node, attention_heads(b, node, in[0], q, size), GQA_Q_NORM);
    parts->k = gqa_norm(b, node, attention_heads(b, node, in[1], kv, size), GQA_K_NORM);
    parts->q = rotate(b, node, parts->q, q, positions);
    parts->k = rotate(b, node, parts->k, kv, positions);
    parts->v = attention_heads(b, node, in[2], kv, size);
    parts->scale = attention_scale(b, node, size);
    parts->softcap = ir_attr_float(node, "softcap");
    parts->causal = ir_attr_int(node, "causal") == 1;
    parts->sink = ir_node_input(node, GQA_SINK);
    if (!parts->sink && ir_attr_int(node, "smooth_softmax") == 1)
        parts->sink = ir_build_f32(b, 0);
    parts->window = ir_attr_int(node, "local_window_size");
    if (parts->window > 0 && options->legacy_window)
        parts->window++;
}
