/* Softmax, ArgMax, ArgMin and TopK of floats. */
#include "targets/gpu/graph.h"
#include "targets/gpu/order.h"

static bool has_floats(const ir_node *node) {
    return OP_IN(OP_FLOATS, op_in_type(node, 0).dtype) && op_in_type(node, 0).rank >= 1;
}

bool gpu_match_softmax(const ir_node *node) {
    return has_floats(node);
}

gqac_status gpu_bind_softmax(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(b, record, gpu_softmax, .x = bind_value(ir_node_input(root, 0)),
                       .y = bind_value(ir_node_output(root, 0)),
                       .axis = ir_attr_is_set(root, "axis") ? ir_attr_int(root, "axis") : -1);
}

bool gpu_match_arg(const ir_node *node) {
    return has_floats(node);
}

gqac_status gpu_bind_arg(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(b, record, gpu_arg_search, .x = bind_value(ir_node_input(root, 0)),
                       .y = bind_value(ir_node_output(root, 0)), .axis = ir_attr_int(root, "axis"),
                       .least = op_is(root, "", "ArgMin"),
                       .keep = ir_attr_int(root, "keepdims") != 0,
                       .last = ir_attr_int(root, "select_last_index") != 0);
}

/* k is a constant: the number of elements that a group keeps has a maximum. */
bool gpu_match_top(const ir_node *node) {
    const ir_value *k = ir_node_input(node, 1);
    const gqac_tensor *t = k ? k->constant : NULL;
    return has_floats(node) && t && t->dtype == GQAC_I64 && gqac_tensor_count(t) == 1 &&
           op_get_i64(t, 0) >= 0 && op_get_i64(t, 0) <= GPU_ORDER_TOP;
}

gqac_status gpu_bind_top(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(
        b, record, gpu_top, .x = bind_value(ir_node_input(root, 0)),
        .k = bind_value(ir_node_input(root, 1)), .values = bind_value(ir_node_output(root, 0)),
        .indices = bind_value(ir_node_output(root, 1)), .axis = ir_attr_int(root, "axis"),
        .least = ir_attr_int(root, "largest") == 0);
}
