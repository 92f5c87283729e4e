/* Linear biases (ALiBi). A tracer writes them into a mask that has a column for each key of one
 * call. They are read from the mask (raise_mask.c) and removed before the model gets its caches,
 * and written again afterwards for cached and new keys. */
#include <float.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "passes/insert_kv.h"

enum { MASK = 3, PAST_KEY, PAST_VALUE, NONPAD }; /* operands of Attention (ONNX) */

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
    slopes->old = ir_node_input(node, MASK);
    ir_node_set_input(node, MASK, NULL);
    if (seen->causal)
        ir_attr_set_int(node, "is_causal", 1);
    if (seen->left >= 0)
        ir_attr_set_int(node, "left_window_size", seen->left);
    return GQAC_OK;
}

/* [1,H,1,P+S]: slopes[h] * k. */
static ir_value *build_bias(raise *r, const insert_slopes *slopes, const ir_node *node) {
    ir_builder *b = &r->b;
    ir_value *q = ir_node_input(node, 0), *past = ir_node_input(node, PAST_KEY);
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
    ir_value *in[NONPAD] = {NULL}, *one = OP_I64S(b, 1);
    ir_node *prev = node->prev;
    if (last->made && last->old == slopes->old) {
        in[MASK] = last->made;
    } else {
        ir_value *q = ir_node_input(node, 0), *rows = raise_ask_dim(&r, q, q->type.rank - 2);
        ir_value *bias = build_bias(&r, slopes, node);
        if (slopes->seen.padding) {
            ir_value *here = raise_padding(&r, slopes->seen.padding, rows);
            bias = OP_BUILD(b, "Where", .in = {here, bias, ir_build_f32(b, -FLT_MAX)});
        } else {
            bias = raise_expand(&r, bias, 4, (ir_value *[]){one, one, rows, one});
        }
        in[MASK] = bias;
    }
    GQAC_TRY(b->status);
    GQAC_TRY(pass_settle(node, prev, context->diag));
    for (int i = 0; i < NONPAD; i++)
        in[i] = i == MASK ? in[i] : ir_node_input(node, i);
    *last = *slopes;
    last->made = in[MASK];
    return ir_node_set_inputs(node, NONPAD, in) ? GQAC_OK : gqac_diag_oom(context->diag, "a mask");
}
