/* lo, hi i32 [B,S]: query s of sequence b (a batch row, or a run of packed rows: ops/visible.h)
 * attends to the keys lo <= j < hi.
 *   hi = p_b + s + 1 when causal, else p_b + n_b
 *   lo = max(0, p_b + s + 1 - window) with a window, else 0
 * Rows s >= n_b have no visible keys: lo = hi = 0. */
#include "ops/attention.h"

static const ir_attr_spec attrs[] = {
    ATTENTION_VISIBLE_ATTRS,
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_dtype(node, 0, GQAC_I32, diag));
    GQAC_TRY(attention_want_dtype(node, 1, GQAC_I32, diag));
    GQAC_TRY(attention_want_rank(node, 2, 4, diag));
    const ir_dim *dims[2] = {op_in_dim(node, 2, 0), op_in_dim(node, 2, 2)};
    GQAC_TRY(op_set_type(node, 0, GQAC_I32, 2, dims, diag));
    return op_set_type(node, 1, GQAC_I32, 2, dims, diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 2, GQAC_NONE));
    if (call->in[2]->rank != 4)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "the queries must have rank 4");
    int64_t dims[2] = {call->in[2]->dims[0], call->in[2]->dims[2]};
    GQAC_TRY(op_output(call, 0, GQAC_I32, 2, dims));
    GQAC_TRY(op_output(call, 1, GQAC_I32, 2, dims));
    return attention_visible(call, 0, dims[0], dims[1], call->out[0].data, call->out[1].data);
}

const gqac_op gqac_op_visible_range = {
    .schema = {.name = "visible_range",
               .domain = "gqac",
               .since = 1,
               .inputs = "past_len new_len q",
               .outputs = "lo hi",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "the keys lo <= j < hi that each query of q [B,Hq,S,D] sees, i32 [B,S]"},
    .infer = infer,
    .verify = attention_visible_verify,
    .eval = eval,
    .mixes = attention_visible_mixes,
};
