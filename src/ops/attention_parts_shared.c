/* take_apart: q, k and v of an attention op as ONNX ops make them. */
#include "ops/gqa.h"

#include <math.h>
#include <string.h>

void attention_refuse(ir_builder *b, const ir_node *node, const char *what) {
    if (b->status == GQAC_OK)
        b->status = op_fail(node, b->diag, GQAC_UNSUPPORTED, "%s", what);
}

/* Heads before rows, or back. */
static ir_value *swap_rows(ir_builder *b, ir_value *x) {
    ir_node *turn = op_build(b, "", "Transpose", 1, &x, 1);
    if (turn && !ir_attr_set_ints(turn, "perm", 4, (int64_t[]){0, 2, 1, 3}))
        b->status = gqac_diag_oom(b->diag, "an attribute");
    return ir_build_result(b, turn, 0);
}

ir_value *attention_heads(ir_builder *b, const ir_node *node, ir_value *x, int64_t heads,
                          const ir_dim *size) {
    int64_t shape[4] = {0, 0, heads, 0};
    if (!ir_dim_is_const(size, &shape[3]) || shape[3] < 1) {
        attention_refuse(b, node, "the head size is not constant");
        return NULL;
    }
    x = op_build1(b, "", "Reshape", 2, (ir_value *[]){x, ir_build_i64s(b, 4, shape)});
    return swap_rows(b, x);
}

ir_value *attention_flatten(ir_builder *b, ir_value *y) {
    ir_value *shape = ir_build_i64s(b, 3, (int64_t[]){0, 0, -1});
    return op_build1(b, "", "Reshape", 2, (ir_value *[]){swap_rows(b, y), shape});
}

static ir_value *norm(ir_builder *b, const ir_node *node, ir_value *x, int weight) {
    ir_value *in[] = {x, ir_node_input(node, weight)};
    if (!in[1])
        return x;
    ir_node *norm = op_build(b, "", "SimplifiedLayerNormalization", 2, in, 1);
    if (norm)
        ir_attr_set_float(norm, "epsilon", ir_attr_float(node, "qk_norm_epsilon"));
    return ir_build_result(b, norm, 0);
}

/* x [B,N,S,D] rotated at the positions; tables narrower than D/2 leave the channels behind. */
static ir_value *rotate(ir_builder *b, const ir_node *node, ir_value *x, int64_t heads,
                        ir_value *positions) {
    int64_t half = 0, size = 0;
    if (ir_attr_int(node, "do_rotary") != 1)
        return x;
    ir_node *rotary = op_build(
        b, "", "RotaryEmbedding", 4,
        (ir_value *[]){x, ir_node_input(node, COS), ir_node_input(node, SIN), positions}, 1);
    if (!rotary)
        return NULL;
    if (!ir_dim_is_const(op_in_dim(node, COS, 1), &half) ||
        !ir_dim_is_const(gqa_head_size(node), &size))
        attention_refuse(b, node, "the width of cos_cache is not constant");
    ir_attr_set_int(rotary, "interleaved", ir_attr_int(node, "rotary_interleaved"));
    ir_attr_set_int(rotary, "num_heads", heads);
    if (2 * half < size)
        ir_attr_set_int(rotary, "rotary_embedding_dim", 2 * half);
    return ir_build_result(b, rotary, 0);
}

/* query [B,S,(Hq+2Hkv)*D] in three. */
static void split_packed(ir_builder *b, const ir_node *node, int64_t q, int64_t kv,
                         ir_value *parts[3]) {
    int64_t size = 0;
    if (!ir_dim_is_const(gqa_head_size(node), &size)) {
        attention_refuse(b, node, "the head size is not constant");
        return;
    }
    const int64_t widths[3] = {q * size, kv * size, kv * size};
    ir_node *split =
        op_build(b, "", "Split", 2,
                 (ir_value *[]){ir_node_input(node, QUERY), ir_build_i64s(b, 3, widths)}, 3);
    if (split)
        ir_attr_set_int(split, "axis", 2);
    for (int i = 0; i < 3; i++)
        parts[i] = ir_build_result(b, split, i);
}

/* The caller has positions of its own in the place of the input position_ids; what the graph adds
 * to that input would be lost. */
static bool counts_itself(const ir_node *node) {
    const ir_value *ids = ir_node_input(node, POSITION_IDS);
    return ids && ir_attr_int(node, "do_rotary") == 1 &&
           (ids->def || ids->constant || !ids->name || strcmp(ids->name, "position_ids") != 0);
}

static void refuse_rest(ir_builder *b, const ir_node *node) {
    if (counts_itself(node))
        attention_refuse(b, node, "operand position_ids is not the input position_ids itself");
    if (ir_node_input(node, BIAS))
        attention_refuse(b, node, "attention_bias has a column for each key of one call");
    if (gqa_code_bits(node))
        attention_refuse(b, node, "the cache is quantised");
    if (ir_node_output(node, 3))
        attention_refuse(b, node, "output output_qk has a column for each key of one call");
}

void gqa_take_apart(ir_builder *b, const ir_node *node, ir_value *positions,
                    const op_options *options, op_parts *parts) {
    const int64_t q = ir_attr_int(node, "num_heads"), kv = ir_attr_int(node, "kv_num_heads");
    const ir_dim *size = gqa_head_size(node);
    ir_value *in[3] = {ir_node_input(node, QUERY), ir_node_input(node, KEY),
                       ir_node_input(node, VALUE)};
    int64_t width = 0;
    refuse_rest(b, node);
    if (!in[1])
        split_packed(b, node, q, kv, in);
    if (b->status != GQAC_OK)
        return;
    parts->q = norm(b, node, attention_heads(b, node, in[0], q, size), Q_NORM);
    parts->k = norm(b, node, attention_heads(b, node, in[1], kv, size), K_NORM);
    parts->q = rotate(b, node, parts->q, q, positions);
    parts->k = rotate(b, node, parts->k, kv, positions);
    parts->v = attention_heads(b, node, in[2], kv, size);
    parts->scale = ir_attr_float(node, "scale");
    if (parts->scale == 0 && ir_dim_is_const(size, &width))
        parts->scale = 1.0f / sqrtf((float)width);
    parts->softcap = ir_attr_float(node, "softcap");
    parts->causal = ir_attr_int(node, "causal") == 1;
    parts->sink = ir_node_input(node, SINK);
    if (!parts->sink && ir_attr_int(node, "smooth_softmax") == 1)
        parts->sink = ir_build_f32(b, 0);
    parts->window = ir_attr_int(node, "local_window_size");
    if (parts->window > 0 && options->legacy_window)
        parts->window++;
}
