/* For sequences: a mask that GroupQueryAttention or MultiHeadAttention (com.microsoft) adds to the
 * scores as a tensor becomes attributes, if it is only causality, or causality and a window. */
#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise.h"

enum { MOST_INPUTS = 16, MOST_OUTPUTS = 4 };

/* An op, and the names of its attributes; window NULL: there is none. */
typedef struct attention_op {
    const char *name, *causal, *window;
} attention_op;

static const attention_op ops[] = {
    {"com.microsoft.GroupQueryAttention", "causal", "local_window_size"},
    {"com.microsoft.MultiHeadAttention", "unidirectional", NULL},
};

/* True if a mask is read that says nothing but which keys each query of the call sees. */
static bool read_mask(raise *r, const ir_node *node, raise_mask *seen) {
    ir_dims *dims = r->context->module->dims;
    const ir_value *q = ir_node_operand(node, "query"), *k = ir_node_operand(node, "key");
    const ir_value *mask = ir_node_operand(node, "attention_bias");
    const ir_value *past = ir_node_operand(node, "past_key");
    *seen = (raise_mask){.left = -1};
    if (!mask || !past || past->type.rank != 4 || q->type.rank != 3 || !q->type.dims[1] ||
        (k && (k->type.rank != 3 || k->type.dims[1] != q->type.dims[1])) ||
        ir_node_operand(node, "past_sequence_length")) /* then the past is a buffer */
        return false;
    const ir_dim *of_q[] = {q->type.dims[0], ir_dim_const(dims, ir_attr_int(node, "num_heads")),
                            q->type.dims[1], NULL};
    const ir_type type = {.dtype = q->type.dtype, .rank = 4, .dims = of_q};
    const ir_dim *keys =
        past->type.dims[2] ? ir_dim_add(dims, past->type.dims[2], q->type.dims[1]) : NULL;
    return raise_read_mask(r, mask, false, &type, past, keys, seen) && !seen->padding &&
           !seen->slopes;
}

int64_t raise_window_size(const raise *r, int64_t left) {
    return r->context->options.legacy_window ? left : left + 1;
}

ir_value *raise_causal(raise *r, ir_node *node) {
    const attention_op *op = &ops[op_is(node, "com.microsoft", "MultiHeadAttention")];
    ir_value *in[MOST_INPUTS], *made[MOST_OUTPUTS], **out[MOST_OUTPUTS] = {NULL};
    const int mask = ir_schema_index(node->op->inputs, "attention_bias");
    raise_mask seen;
    if (node->n_inputs > MOST_INPUTS || !read_mask(r, node, &seen))
        return NULL;
    const int64_t window = op->window ? ir_attr_int(node, op->window) : -1;
    const int64_t seen_window = seen.left < 0 ? -1 : raise_window_size(r, seen.left);
    const bool causal = seen.causal || ir_attr_int(node, op->causal);
    const bool narrower = seen_window >= 0 && (window < 0 || seen_window < window);
    if (seen.left >= 0 && (!op->window || !causal || !seen_window))
        return NULL;
    for (int i = 0; i < node->n_inputs; i++)
        in[i] = i == mask ? NULL : ir_node_input(node, i);
    for (int i = 0; i < node->n_outputs; i++)
        out[i] = ir_node_output(node, i) ? &made[i] : NULL;
    OP_BUILD(&r->b, op->name, .list = {node->n_inputs, in}, .of = node,
             .ints = {{op->causal, causal}, {narrower ? op->window : NULL, seen_window}},
             .out = {out[0], out[1], out[2], out[3]});
    for (int i = 1; i < node->n_outputs && r->b.status == GQAC_OK; i++)
        if (out[i])
            raise_also(r, node->outputs[i], made[i], false);
    return r->b.status == GQAC_OK ? made[0] : NULL;
}
