/* For sequences: MultiHeadAttention (com.microsoft) becomes Attention in two cases.
 * - The file adds a mask [B,H,S,P+S] to the scores, and the mask can be read. Exports that cannot
 *   use GroupQueryAttention have this form: keys and values of fewer heads are appended to the
 * past, repeated for all heads in simple ops, and passed as [B,P+S,H*D].
 * - The node is causal, has no mask, and its keys and values [B,H,P+S,D] are appended to the past
 *   outside it. */
#include "ops/build.h"
#include "passes/raise_attention.h"

#include <math.h>

/* x, once types of the nodes after `before` are known; NULL: an error. */
static ir_value *settled(raise *r, ir_node *node, ir_node *before, ir_value *x) {
    if (r->b.status == GQAC_OK)
        r->b.status = pass_settle(node, before, r->b.diag);
    return r->b.status == GQAC_OK ? x : NULL;
}

/* x [B,T,H*D] or [B,H,T,D] as [B,H,T,D]; NULL: it cannot be raised. */
static ir_value *heads_of(raise *r, ir_node *node, ir_value *x) {
    static const int64_t heads_last[] = {0, 2, 1, 3};
    if (x->type.rank == 4)
        return x;
    const int64_t heads = ir_attr_int(node, "num_heads"), width = raise_dim(x, 2);
    const ir_node *reshape = raise_maker(x, "Reshape");
    const ir_node *swap = reshape ? raise_maker(ir_node_input(reshape, 0), "Transpose") : NULL;
    ir_value *four = swap ? ir_node_input(swap, 0) : NULL;
    if (!width || width % heads != 0)
        return raise_stopped(r, node, "the width of queries, keys or values is not constant"), NULL;
    if (four && raise_is_perm(swap, 4, heads_last) && raise_dim(four, 1) == heads &&
        raise_dim(four, 3) * heads == width && raise_same_dims(four, 0, x, 0, 1) &&
        raise_same_dims(four, 2, x, 1, 1))
        return four;
    ir_node *before = node->prev;
    return settled(r, node, before, raise_unpack(r, x, heads, width / heads));
}

/* Reads keys or values, and the past of the node itself; `present` is the output for that past. */
static bool read_cache(raise *r, ir_node *node, ir_value *rows, ir_value *past, ir_value *present,
                       attention_operand *out) {
    ir_value *x = heads_of(r, node, rows);
    if (!x || !raise_read_operand(r, x, out))
        return false;
    if (!past)
        return true;
    if (out->past || !present)
        return raise_stopped(r, node, "its past is not that of its present");
    out->past = past;
    out->present = present;
    return true;
}

/* True if the node has a mask, or is causal with keys that are appended outside it. */
static bool is_candidate(const ir_node *node) {
    static const char *const unread[] = {"bias", "key_padding_mask", "past_sequence_length",
                                         "cache_indirection"};
    const ir_value *key = ir_node_operand(node, "key");
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (ir_node_operand(node, unread[i]))
            return false;
    if (!key || ir_node_operand(node, "query")->type.rank != 3 || ir_node_output(node, 3))
        return false;
    if (ir_node_operand(node, "attention_bias"))
        return key->type.rank == 3;
    return key->type.rank == 4 && raise_maker(key, "Concat") &&
           ir_attr_int(node, "unidirectional") && !ir_node_operand(node, "past_key");
}

ir_value *raise_multi_head(raise *r, ir_node *node) {
    attention a = {.root = node, .scores = {.scale = (double)ir_attr_float(node, "scale")}};
    if (!is_candidate(node))
        return NULL;
    r->what = "Attention";
    ir_value *past = ir_node_operand(node, "past_key");
    a.scores.parts[0].of = ir_node_operand(node, "attention_bias");
    a.scores.n = a.scores.parts[0].of != NULL;
    a.q = heads_of(r, node, ir_node_operand(node, "query"));
    if (!a.q ||
        !read_cache(r, node, ir_node_operand(node, "key"), past, ir_node_output(node, 1), &a.k) ||
        !read_cache(r, node, ir_node_operand(node, "value"), ir_node_operand(node, "past_value"),
                    ir_node_output(node, 2), &a.v) ||
        !raise_fits(r, &a, node) || !raise_read_masks(r, &a))
        return NULL;
    if (ir_attr_int(node, "unidirectional") && !past && !raise_same_dims(a.q, 2, a.k.rows, 2, 1))
        return raise_stopped(r, node, "the number of its queries is not that of its new keys"),
               NULL;
    if (a.has_tensors && !(a.scores.parts[0].seen.slopes && a.k.past))
        return raise_stopped(r, r->carried ? r->carried : node,
                             r->carried ? r->carried_why : "its bias is not read"),
               NULL;
    if (a.scores.scale == 0)
        a.scores.scale = 1 / sqrt((double)raise_dim(a.q, 3));
    a.mask.causal = a.mask.causal || ir_attr_int(node, "unidirectional");
    ir_node *before = node->prev;
    ir_value *y = settled(r, node, before, raise_build_attention(r, &a));
    return y ? raise_pack(r, y) : NULL;
}
