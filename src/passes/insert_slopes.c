/* Linear biases (ALiBi). A tracer writes them into a mask that has a column for each key of one
 * call. They are read from the mask (raise_mask.c) and removed before the model gets its caches,
 * and written again afterwards for cached and new keys. */
#include <float.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "passes/insert_kv.h"

gqac_status insert_slopes_take(pass_context *context, int *steps, ir_node *node,
                               insert_slopes *slopes) {
    raise_unread unread[2] = {{0}};
    raise r = {.context = context,
               .steps = steps,
               .unread = unread,
               .b = {.graph = node->graph, .before = node, .diag = context->diag}};
    raise_mask *seen = &slopes->seen;
    slopes->heads = 0;
    if (!op_is(node, "", "Attention") || !raise_read_own(&r, node, seen, &slopes->heads) ||
        !seen->slopes || seen->rounded != GQAC_NONE ||
        ir_node_input(node, 0)->type.dtype != GQAC_F32 ||
        (seen->left >= 0 && ir_attr_int(node, "left_window_size") >= 0))
        slopes->heads = 0;
    GQAC_TRY(r.b.status);
    if (!slopes->heads)
        return GQAC_OK;
    slopes->old = ir_node_operand(node, "attn_mask");
    ir_node_set_input(node, ir_schema_index(node->op->inputs, "attn_mask"), NULL);
    if (seen->causal)
        ir_attr_set_int(node, "is_causal", 1);
    if (seen->left >= 0)
        ir_attr_set_int(node, "left_window_size", seen->left);
    return GQAC_OK;
}

/* [1,H,1,P+S]: slopes[h] * k. */
static ir_value *build_bias(raise *r, const insert_slopes *slopes, const ir_node *node) {
    ir_builder *b = &r->b;
    ir_value *q = ir_node_input(node, 0), *past = ir_node_operand(node, "past_key");
    ir_value *end = OP_BUILD(
        b, "Add",
        .in = {op_build_lengths(b, past, 2, 1), op_build_lengths(b, q, q->type.rank - 2, 1)});
    end = OP_BUILD(b, "Squeeze", .in = {end});
    ir_value *keys = OP_BUILD(b, "Range", .in = {ir_build_i64(b, 0), end, ir_build_i64(b, 1)});
    ir_value *axes = OP_I64S(b, 0, 2, 3);
    ir_value *each =
        OP_BUILD(b, "Unsqueeze", .in = {raise_slopes(r, &slopes->seen, slopes->heads), axes});
    return OP_BUILD(b, "Mul", .in = {each, op_build_cast(b, keys, GQAC_F32)});
}

gqac_status insert_slopes_put(pass_context *context, ir_node *node, const insert_slopes *slopes,
                              insert_slopes *last) {
    raise r = {.context = context,
               .b = {.graph = node->graph, .before = node, .diag = context->diag}};
    ir_builder *b = &r.b;
    ir_value *mask = last->old == slopes->old ? last->made : NULL, *one = OP_I64S(b, 1);
    ir_node *prev = node->prev;
    if (!mask) {
        ir_value *q = ir_node_input(node, 0), *rows = raise_ask_dim(&r, q, q->type.rank - 2);
        mask = build_bias(&r, slopes, node);
        if (slopes->seen.padding) {
            ir_value *here = raise_padding(&r, slopes->seen.padding, rows);
            mask = OP_BUILD(b, "Where", .in = {here, mask, ir_build_f32(b, -FLT_MAX)});
        } else {
            mask = raise_expand(&r, mask, 4, (ir_value *[]){one, one, rows, one});
        }
    }
    GQAC_TRY(b->status);
    GQAC_TRY(pass_settle(node, prev, context->diag));
    *last = *slopes;
    last->made = mask;
    return insert_mask(node, mask, context->diag);
}
