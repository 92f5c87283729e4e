/* Sequence state of causal convolutions.
 *
 * The state of CausalConvWithState is the last elements of its own input. A sequence keeps that
 * input for every token, as rows of one head, and the convolution reads the last ones (kv_tail). So
 * splits, rewinds and forks need nothing special, and no bit depends on where calls end. */
#include <string.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "passes/stateful.h"

enum { X, WEIGHT, BIAS, PAST };
enum { PRESENT = 1 };

static bool is_conv(const ir_node *node) {
    return op_is(node, "", "CausalConvWithState") ||
           op_is(node, "com.microsoft", "CausalConvWithState");
}

bool stateful_is_conv(const ir_node *node, const ir_value *past) {
    const ir_value *present = is_conv(node) ? ir_node_output(node, PRESENT) : NULL;
    return present && ir_node_input(node, PAST) == past && !past->uses->next && present->uses &&
           !present->uses->next && present->uses->node == node->graph->ret;
}

gqac_status stateful_conv_rows(ir_builder *b, const ir_node *conv, ir_value **rows) {
    ir_value *turned = OP_TRANSPOSE(b, conv->inputs[X].value, 0, 2, 1);
    *rows = OP_BUILD(b, "Unsqueeze", .in = {turned, OP_I64S(b, 1)});
    GQAC_TRY(b->status);
    GQAC_TRY(op_infer(turned->def, b->diag));
    return op_infer((*rows)->def, b->diag);
}

gqac_status stateful_conv_join(ir_builder *b, ir_node *conv, ir_value *rows, ir_value *past_len) {
    const ir_type *present = &conv->outputs[PRESENT]->type;
    int64_t length;
    if (present->rank != 3 || !ir_dim_is_const(present->dims[2], &length) || length < 1)
        return op_fail(conv, b->diag, GQAC_UNSUPPORTED,
                       "a causal convolution whose weights are not constant, or that has only one "
                       "tap, is not supported");
    ir_value *state = OP_BUILD(b, "kv_tail", .in = {rows, past_len}, .ints = {{"length", length}});
    GQAC_TRY(b->status);
    state->def->name = conv->name;
    GQAC_TRY(op_infer(state->def, b->diag));
    ir_value *inputs[PAST + 1] = {conv->inputs[X].value, conv->inputs[WEIGHT].value,
                                  conv->inputs[BIAS].value, state};
    if (!ir_node_set_inputs(conv, PAST + 1, inputs))
        return gqac_diag_oom(b->diag, "KV state");
    ir_value_replace(conv->outputs[PRESENT], rows); /* a result, which goes with the presents */
    return GQAC_OK;
}
