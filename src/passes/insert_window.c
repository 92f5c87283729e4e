/* Windows of Attention as masks. The attribute for windows is of opset 25, which other run times do
 * not know yet; all of them know masks. */
#include <math.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "passes/insert_kv.h"

/* What was built for the layer before: all pasts have the same number of rows, so layers share
 * masks. */
typedef struct made {
    int64_t left;
    const ir_value *old;
    ir_value *window, *mask;
} made;

/* True if the window becomes a mask. A window that also has a right side stays an attribute, and so
 * does one without a past whose number of keys may differ from that of its queries. */
static bool has_window(const ir_node *node) {
    if (!op_is(node, "", "Attention") || ir_attr_int(node, "left_window_size") < 0 ||
        ir_attr_int(node, "right_window_size") >= 0 || ir_node_operand(node, "nonpad_kv_seqlen"))
        return false;
    const ir_dim *rows = insert_kv_rows(ir_node_input(node, 0));
    return rows &&
           (ir_node_operand(node, "past_key") || rows == insert_kv_rows(ir_node_input(node, 1)));
}

static ir_value *count(ir_builder *b, ir_value *start, ir_value *end) {
    return OP_BUILD(b, "Range", .in = {start, end, ir_build_i64(b, 1)});
}

/* Bool [S,P+S]: key k is at most `left` rows before query q, whose position is P + q. */
static ir_value *build_window(ir_builder *b, ir_value *q, ir_value *past, int64_t left) {
    ir_value *zero = ir_build_i64(b, 0);
    ir_value *start = past ? op_build_length(b, past, 2) : zero;
    ir_value *end = op_build_length(b, q, q->type.rank - 2);
    if (past)
        end = OP_BUILD(b, "Add", .in = {start, end});
    ir_value *first = OP_BUILD(b, "Sub", .in = {count(b, start, end), ir_build_i64(b, left)});
    first = OP_BUILD(b, "Unsqueeze", .in = {first, OP_I64S(b, 1)});
    return OP_BUILD(b, "GreaterOrEqual", .in = {count(b, zero, end), first});
}

/* Combines mask and window; a mask that is not bool is added to scores. */
static ir_value *build_both(ir_builder *b, ir_value *mask, ir_value *window) {
    const gqac_dtype dtype = mask->type.dtype;
    if (dtype == GQAC_BOOL)
        return OP_BUILD(b, "And", .in = {mask, window});
    ir_value *hidden = op_build_cast(b, ir_build_f32(b, -INFINITY), dtype);
    return OP_BUILD(b, "Where", .in = {window, mask, hidden});
}

static ir_value *build_mask(ir_builder *b, const ir_node *node, ir_value *past, made *last) {
    ir_value *old = ir_node_operand(node, "attn_mask");
    const int64_t left = ir_attr_int(node, "left_window_size");
    if (!last->window || !past || last->left != left)
        *last = (made){.left = left, .window = build_window(b, ir_node_input(node, 0), past, left)};
    if (!last->mask || last->old != old) {
        last->old = old;
        last->mask = old ? build_both(b, old, last->window) : last->window;
    }
    return last->mask;
}

gqac_status insert_mask(ir_node *node, ir_value *mask, gqac_diag *diag) {
    ir_value *past = ir_node_operand(node, "past_key");
    ir_value *in[] = {ir_node_operand(node, "Q"),
                      ir_node_operand(node, "K"),
                      ir_node_operand(node, "V"),
                      mask,
                      past,
                      ir_node_operand(node, "past_value")};
    return ir_node_set_inputs(node, past ? 6 : 4, in) ? GQAC_OK : gqac_diag_oom(diag, "a mask");
}

gqac_status insert_windows(ir_graph *graph, gqac_diag *diag) {
    made last = {.left = -1};
    for (ir_node *node = graph->first; node; node = node->next) {
        ir_node *prev = node->prev;
        ir_builder b = {.graph = graph, .before = node, .diag = diag};
        if (!has_window(node))
            continue;
        ir_value *mask = build_mask(&b, node, ir_node_operand(node, "past_key"), &last);
        GQAC_TRY(b.status);
        GQAC_TRY(pass_settle(node, prev, diag));
        GQAC_TRY(insert_mask(node, mask, diag));
        ir_attr_set_int(node, "left_window_size", -1);
    }
    return GQAC_OK;
}
