/* Sequence state of recurrences.
 *
 * LinearAttention carries one matrix a head from call to call. A sequence keeps that matrix, and
 * the op that replaces it, recurrent_attention, reads the one of the published length and writes
 * the next. */
#include "passes/stateful.h"

enum { PAST = 3, INPUTS = 6 };
enum { RESULT, PRESENT };

bool stateful_is_recurrent(const ir_node *node, const ir_value *past) {
    const bool is =
        op_is(node, "", "LinearAttention") || op_is(node, "com.microsoft", "LinearAttention");
    const ir_value *present = is ? ir_node_output(node, PRESENT) : NULL;
    return present && ir_node_input(node, PAST) == past && !past->uses->next && present->uses &&
           !present->uses->next && present->uses->node == node->graph->ret;
}

gqac_status stateful_recurrent_join(ir_builder *b, ir_node *node, ir_value *token,
                                    ir_value **last) {
    ir_value *inputs[INPUTS] = {0};
    for (int i = 0; i < node->n_inputs; i++)
        inputs[i] = i == PAST ? token : node->inputs[i].value;
    ir_node *made = op_build(b, "gqac", "recurrent_attention", node->n_inputs, inputs, 2);
    if (b->status != GQAC_OK)
        return b->status;
    for (const ir_attr_spec *spec = node->op->attrs; spec->name; spec++)
        made->attrs[spec - node->op->attrs] = node->attrs[spec - node->op->attrs];
    made->name = node->name;
    GQAC_TRY(op_infer(made, b->diag));
    ir_value_replace(node->outputs[RESULT], made->outputs[RESULT]);
    /* a result, which goes with the presents */
    ir_value_replace(node->outputs[PRESENT], made->outputs[PRESENT]);
    ir_node_remove(node);
    *last = made->outputs[PRESENT];
    return GQAC_OK;
}
