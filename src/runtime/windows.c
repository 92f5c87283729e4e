/* See windows.h. The graph is claimed: attention is one node, or the ops that it was expanded to.
 */
#include "runtime/windows.h"

#include "ops/op.h"

enum { ALL = 0, NONE = -1 };

static const ir_value *input_of(const ir_node *node, int index) {
    return index < node->n_inputs ? node->inputs[index].value : NULL;
}

/* The window of the ranges of keys that begin at `lo`. */
static int64_t window_of_range(const ir_value *lo) {
    enum { X = 0, PAST_LEN = 4 };
    const ir_node *node = lo ? lo->def : NULL;
    while (node && op_is(node, "gqac", "unpack_rows")) {
        const ir_value *x = input_of(node, X);
        if (!x)
            break;
        node = x->def;
    }
    if (node && op_is(node, "gqac", "visible_range"))
        return ir_attr_int(node, "window") > 0 ? ir_attr_int(node, "window") : ALL;
    if (node && op_is(node, "gqac", "key_range") && input_of(node, PAST_LEN))
        return ir_attr_int(node, "left") >= 0 ? ir_attr_int(node, "left") + 1 : ALL;
    return ALL;
}

static int64_t window_of_rows(const ir_value *rows);

/* The window in which a node reads rows; NONE: it reads none. */
static int64_t window_of_use(const ir_use *use) {
    enum { K = 1, V = 2, LO_OF_ATTEND = 3, LO = 2 };
    const ir_node *node = use->node;
    const int64_t input = use - node->inputs;
    const bool shows = node->n_outputs > 1 && node->outputs[1]; /* scores of all keys */
    if (op_is(node, "gqac", "key_range") && input == K)
        return NONE; /* their number alone */
    if (op_is(node, "gqac", "kv_dequantise") && input == 0)
        return window_of_rows(node->outputs[0]);
    if (op_is(node, "gqac", "attention") && (input == K || input == V) && !shows)
        return ir_attr_int(node, "window") > 0 ? ir_attr_int(node, "window") : ALL;
    if (op_is(node, "gqac", "attend") && (input == K || input == V) && !shows)
        return window_of_range(input_of(node, LO_OF_ATTEND));
    if ((op_is(node, "gqac", "attention_scores") || op_is(node, "gqac", "weigh")) && input == K)
        return window_of_range(input_of(node, LO));
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
    const ir_value *token = kv_state->n_outputs ? kv_state->outputs[0] : NULL;
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
