/* The mask of an Attention: what attributes can express becomes attributes. */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise.h"

ir_value *raise_slopes(raise *r, const raise_mask *seen, int64_t heads) {
    const gqac_tensor t = {
        .dtype = GQAC_F32, .rank = 1, .dims = {heads}, .data = (void *)(uintptr_t)seen->slopes};
    ir_value *of = ir_graph_add_constant(r->b.graph, "slopes", &t);
    if (!of && r->b.status == GQAC_OK)
        r->b.status = gqac_diag_oom(r->b.diag, "slopes");
    return of;
}

ir_value *raise_key_bias(raise *r, const raise_mask *seen, int64_t heads, ir_value *past) {
    ir_value *slopes = raise_slopes(r, seen, heads);
    if (seen->rounded == GQAC_NONE)
        return OP_BUILD(&r->b, "key_bias", .in = {slopes, past});
    return OP_BUILD(&r->b, "key_bias", .in = {slopes, past}, .dtype = {"dtype", seen->rounded},
                    .ints = {{"rounded_keys", seen->whole_rounded}},
                    .floats = {{"scale", seen->factor}});
}

bool raise_read_own(raise *r, ir_node *node, raise_mask *seen, int64_t *heads) {
    const ir_value *q = ir_node_input(node, 0), *k = ir_node_input(node, 1);
    const ir_value *mask = ir_node_operand(node, "attn_mask"),
                   *past = ir_node_operand(node, "past_key");
    *seen = (raise_mask){.left = -1};
    if (!mask || !k || ir_node_operand(node, "nonpad_kv_seqlen") || q->type.rank < 3)
        return false;
    const int rows = q->type.rank - 2;
    const ir_dim *keys = k->type.rank == q->type.rank ? k->type.dims[rows] : NULL;
    if (past && keys && past->type.rank == 4 && past->type.dims[2])
        keys = ir_dim_add(r->context->module->dims, past->type.dims[2], keys);
    const ir_dim *number = ir_dim_const(r->context->module->dims, ir_attr_int(node, "q_num_heads"));
    const ir_dim *dims[] = {q->type.dims[0], rows == 1 ? number : q->type.dims[1],
                            q->type.dims[rows], NULL};
    const ir_type type = {.dtype = q->type.dtype, .rank = 4, .dims = dims};
    if (!dims[1] || !ir_dim_is_const(dims[1], heads))
        *heads = 0;
    return raise_read_mask(r, mask, false, &type, past, keys, seen);
}

/* Only padding stays a mask. */
ir_value *raise_masked(raise *r, ir_node *node) {
    ir_value *q = ir_node_operand(node, "Q"), *past = ir_node_operand(node, "past_key");
    ir_value *made[4], **out[4] = {NULL};
    const int64_t left = ir_attr_int(node, "left_window_size");
    raise_mask seen;
    int64_t n_heads;
    if (!raise_read_own(r, node, &seen, &n_heads) ||
        (seen.slopes &&
         (!r->unpadded || seen.padding || !past || !n_heads || past->type.rank != 4)) ||
        (seen.left < 0 && (!seen.causal || ir_attr_int(node, "is_causal")) &&
         (!r->unpadded || seen.padding)) ||
        (seen.left >= 0 && r->portable))
        return NULL;
    ir_value *mask = seen.padding
                         ? raise_padding(r, seen.padding, raise_ask_dim(r, q, q->type.rank - 2))
                     : seen.slopes ? raise_key_bias(r, &seen, n_heads, past)
                                   : NULL;
    for (int i = 0; i < node->n_outputs; i++)
        out[i] = &made[i];
    OP_BUILD(&r->b, "Attention",
             .in = {q, ir_node_operand(node, "K"), ir_node_operand(node, "V"), mask, past,
                    ir_node_operand(node, "past_value")},
             .of = node,
             .ints = {{seen.left >= 0 ? "left_window_size" : NULL,
                       left < 0 || seen.left < left ? seen.left : left},
                      {seen.causal ? "is_causal" : NULL, 1}},
             .out = {out[0], out[1], out[2], out[3]});
    for (int i = 1; i < node->n_outputs; i++)
        raise_also(r, node->outputs[i], made[i], false);
    return made[0];
}
