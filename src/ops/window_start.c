/* start, past [B] i32 from the past [B,H,C,D] of a window-sized cache and past_len [B]: attention
 * over window_rows counts positions from start_b on, so its past is past_len[b] - start_b. */
#include "ops/attention.h"

static const ir_attr_spec attrs[] = {
    {"window", IR_ATTR_INT, .required = true, .doc = "keys that must stay in the cache"},
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, 0, 4, diag));
    GQAC_TRY(attention_want_dtype(node, 1, GQAC_I32, diag));
    const ir_dim *batch = op_in_dim(node, 0, 0);
    GQAC_TRY(op_set_type(node, 0, GQAC_I32, 1, &batch, diag));
    return op_set_type(node, 1, GQAC_I32, 1, &batch, diag);
}

static gqac_status eval(op_call *call) {
    const gqac_tensor *cache = call->in[0];
    const int64_t window = ir_attr_int(call->node, "window");
    const int32_t *past;
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    if (cache->rank != 4)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "the past must have rank 4");
    GQAC_TRY(attention_window_fits(call, cache->dims[2]));
    GQAC_TRY(attention_lengths(call, 1, cache->dims[0], &past));
    GQAC_TRY(op_output(call, 0, GQAC_I32, 1, &cache->dims[0]));
    GQAC_TRY(op_output(call, 1, GQAC_I32, 1, &cache->dims[0]));
    int32_t *start = call->out[0].data, *rest = call->out[1].data;
    for (int64_t b = 0; b < cache->dims[0]; b++) {
        start[b] = (int32_t)attention_window_start(cache->dims[2], window, past[b]);
        rest[b] = past[b] - start[b];
    }
    return GQAC_OK;
}

const gqac_op gqac_op_window_start = {
    .schema = {.name = "window_start",
               .domain = "gqac",
               .since = 1,
               .inputs = "past past_len",
               .outputs = "start rest",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc =
                   "position from which attention over a window-sized cache counts, and the past "
                   "from there, i32 [B]"},
    .infer = infer,
    .verify = attention_window_verify,
    .eval = eval,
};
