/* Builds nodes one after another before a node of a graph, up to the first failure.
 *
 * A node that was not built is NULL, and all functions accept NULL for a node, so a sequence of
 * calls needs only one check, of `status`, at its end. */
#include "ir/impl.h"

#include <string.h>

static void *short_of_memory(ir_builder *b) {
    b->status = gqac_diag_oom(b->diag, "a node");
    return NULL;
}

ir_node *ir_build(ir_builder *b, const ir_schema *op, const char *name, int n_inputs,
                  ir_value *const *inputs, int n_outputs) {
    if (b->status != GQAC_OK)
        return NULL;
    ir_node *node = ir_node_create(b->graph, op, name, n_inputs, inputs, n_outputs, NULL);
    if (!node)
        return short_of_memory(b);
    ir_node_insert(node, b->before);
    return node;
}

static ir_value *checked(ir_builder *b, ir_value *value) {
    return value ? value : short_of_memory(b);
}

ir_value *ir_build_i64(ir_builder *b, int64_t value) {
    return b->status == GQAC_OK ? checked(b, ir_const_i64(b->graph, "c", value)) : NULL;
}

ir_value *ir_build_i64s(ir_builder *b, int64_t n, const int64_t *values) {
    return b->status == GQAC_OK ? checked(b, ir_const_i64s(b->graph, "c", n, values)) : NULL;
}

ir_value *ir_build_f32(ir_builder *b, float value) {
    return b->status == GQAC_OK ? checked(b, ir_const_f32(b->graph, "c", value)) : NULL;
}

ir_value *ir_build_result(ir_builder *b, ir_node *node, int index) {
    return b->status == GQAC_OK ? ir_node_output(node, index) : NULL;
}

ir_value *ir_node_input(const ir_node *node, int index) {
    return node && index >= 0 && index < node->n_inputs ? node->inputs[index].value : NULL;
}

ir_value *ir_node_operand(const ir_node *node, const char *name) {
    return ir_node_input(node, ir_schema_index(node->op->inputs, name));
}

ir_value *ir_node_output(const ir_node *node, int index) {
    return node && index >= 0 && index < node->n_outputs ? node->outputs[index] : NULL;
}
