/* See windows.h. The graph is claimed: attention is one node, or the ops that it was expanded to.
 */
#include "runtime/windows.h"

#include "ops/op.h"

enum { ALL = 0, NONE = -1 };

/* The window of the ranges of keys that begin at `lo`. */
static int64_t window_of_range(const ir_value *lo) {
    const ir_node *node = lo ? lo->def : NULL;
    while (node && op_is(node, "gqac", "unpack_rows")) {
        const ir_value *x = ir_node_operand(node, "x");
        if (!x)
            break;
        node = x->def;
    }
    if (node && op_is(node, "gqac", "visible_range"))
        return ir_attr_int(node, "window") > 0 ? ir_attr_int(node, "window") : ALL;
    if (node && op_is(node, "gqac", "key_range") && ir_node_operand(node, "past_len"))
        return ir_attr_int(node, "left") >= 0 ? ir_attr_int(node, "left") + 1 : ALL;
    return ALL;
}

static int64_t window_of_rows(const ir_value *rows);

/* True if the use is the keys or the values of a node. */
static bool is_rows(const ir_use *use) {
    const int64_t input = use - use->node->inputs;
    const char *inputs = use->node->op->inputs;
    return input == ir_schema_index(inputs, "k") || input == ir_schema_index(inputs, "v");
}

/* The window in which a node reads rows; NONE: it reads none. */
static int64_t window_of_use(const ir_use *use) {
    const ir_node *node = use->node;
    if (op_is(node, "gqac", "kv_dequantise") && use == node->inputs)
        return window_of_rows(node->outputs[0]);
    if (!is_rows(use))
        return ALL;
    if (op_is(node, "gqac", "key_range"))
        return NONE; /* their number alone */
    if (op_is(node, "gqac", "attention_scores") || op_is(node, "gqac", "weigh"))
        return window_of_range(ir_node_operand(node, "lo"));
    if (ir_node_output(node, 1)) /* scores of all keys */
        return ALL;
    if (op_is(node, "gqac", "attend"))
        return window_of_range(ir_node_operand(node, "lo"));
    if (op_is(node, "gqac", "attention"))
        return ir_attr_int(node, "window") > 0 ? ir_attr_int(node, "window") : ALL;
    return ALL;
}

/* The largest window of all readers; NONE: there are none. */
static int64_t window_of_rows(const ir_value *rows) {
    int64_t window = NONE;
    for (const ir_use *use = rows ? rows->uses : NULL; use; use = use->next) {
        const int64_t one = window_of_use(use);
        if (one == ALL)
            return ALL;
        window = one > window ? one : window;
    }
    return window;
}

int64_t windows_find(const ir_node *kv_state) {
    enum { ROWS = 1 };
    const ir_value *token = ir_node_output(kv_state, 0);
    int64_t window = NONE;
    for (const ir_use *use = token ? token->uses : NULL; use; use = use->next) {
        const ir_node *node = use->node;
        const int64_t one = op_is(node, "gqac", "kv_append") && node->n_outputs > ROWS
                                ? window_of_rows(node->outputs[ROWS])
                                : ALL;
        if (one == ALL)
            return 0;
        window = one > window ? one : window;
    }
    return window > 0 ? window : 0;
}
