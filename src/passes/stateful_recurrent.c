/* Sequence state of recurrences.
 *
 * LinearAttention carries one matrix per head from call to call. A sequence keeps that matrix. The
 * op that replaces LinearAttention, recurrent_attention, reads the matrix of the published length
 * and writes the next one. */
#include "ops/build.h"
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
    ir_value *in[INPUTS] = {0}, *y;
    for (int i = 0; i < node->n_inputs; i++)
        in[i] = i == PAST ? token : node->inputs[i].value;
    OP_BUILD(b, "recurrent_attention", .list = {INPUTS, in}, .of = node, .out = {&y, last});
    GQAC_TRY(b->status);
    y->def->name = node->name;
    GQAC_TRY(op_infer(y->def, b->diag));
    ir_value_replace(node->outputs[RESULT], y);
    ir_value_replace(node->outputs[PRESENT], *last); /* a result, which goes with the presents */
    ir_node_remove(node);
    return GQAC_OK;
}
