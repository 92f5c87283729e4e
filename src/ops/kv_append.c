/* token, new [B,H,S,D], past_len [n], new_len [n] -> token, rows [n,H,T,D]: rows [p_b, p_b + n_b)
 * of the state become the first n_b rows of new; the result is the rows [0, p_b + n_b) of the
 * state, T = max over b. Rows at or beyond p_b + n_b are unspecified. n is B, or new rows are
 * packed and B = 1 (attention.h). It has no eval: targets have a kernel for it. */
#include "ops/attention.h"

static const ir_attr_spec attrs[] = {
    {"slot", IR_ATTR_INT, .required = true, .doc = "number of the past/present pair"},
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_dtype(node, 0, GQAC_TOKEN, diag));
    GQAC_TRY(attention_want_rank(node, 1, 4, diag));
    GQAC_TRY(op_set_type(node, 0, GQAC_TOKEN, 0, NULL, diag));
    const ir_dim *dims[4] = {op_in_dim(node, 2, 0), op_in_dim(node, 1, 1),
                             ir_dim_symbol(op_dims(node), "kv_len"), op_in_dim(node, 1, 3)};
    return op_set_type(node, 1, op_in_type(node, 1).dtype, 4, dims, diag);
}

static gqac_status eval(op_call *call) {
    OP_FAIL(call->node, call->diag, GQAC_INTERNAL, "KV state exists only in a step of a sequence");
}

const gqac_op gqac_op_kv_append = {
    .schema = {.name = "kv_append",
               .domain = "gqac",
               .since = 1,
               .inputs = "token new past_len new_len",
               .outputs = "token rows",
               .attrs = attrs,
               .flags = IR_OP_EFFECT | IR_OP_NO_FOLD,
               .rows = IR_ROWS_STATE,
               .doc = "writes new [B,H,S,D] after the cached rows and returns all rows [n,H,T,D]"},
    .infer = infer,
    .eval = eval,
};
