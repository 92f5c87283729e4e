/* y [B,H,S,R] from a bias [B|1,H|1,S,M] whose columns are absolute positions, and the past
 * [B,H',C,D] of a window-sized cache: column j of y is column start_b + j (see window_start) for
 * the positions below past_len[b] + new_len[b] <= M, and 0 beyond them. */
#include "ops/attention.h"

#include <string.h>

enum { BIAS, PAST, PAST_LEN, NEW_LEN };

static const ir_attr_spec attrs[] = {
    {"window", IR_ATTR_INT, .required = true, .doc = "keys that must stay in the cache"},
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, BIAS, 4, diag));
    GQAC_TRY(attention_want_rank(node, PAST, 4, diag));
    const ir_dim *dims[4] = {op_in_dim(node, PAST, 0), op_in_dim(node, BIAS, 1),
                             op_in_dim(node, BIAS, 2), NULL};
    return op_set_type(node, 0, op_in_type(node, BIAS).dtype, 4, dims, diag);
}

typedef struct shifting {
    const unsigned char *bias;
    unsigned char *y;
    const int32_t *past_len, *new_len;
    int64_t rows, columns, count, capacity, window; /* rows: of a batch row */
    bool shared;                                    /* the same bias for all b */
    size_t width;
} shifting;

/* Items are (b, h, s). */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const shifting *s = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        int64_t b = (int64_t)i / s->rows;
        size_t from = s->shared ? i % (size_t)s->rows : i;
        int64_t start = attention_window_start(s->capacity, s->window, s->past_len[b]);
        size_t bytes = (size_t)(s->past_len[b] - start + s->new_len[b]) * s->width;
        unsigned char *out = s->y + i * (size_t)s->count * s->width;
        memset(out, 0, (size_t)s->count * s->width);
        memcpy(out, s->bias + (from * (size_t)s->columns + (size_t)start) * s->width, bytes);
    }
}

static gqac_status eval(op_call *call) {
    const gqac_tensor *bias = call->in[BIAS], *past = call->in[PAST];
    GQAC_TRY(attention_float(call, BIAS, 4));
    GQAC_TRY(op_want(call, PAST, GQAC_NONE));
    if (past->rank != 4 || (bias->dims[0] != 1 && bias->dims[0] != past->dims[0]))
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "bias has %lld batch rows, which does not fit the past", (long long)bias->dims[0]);
    GQAC_TRY(attention_window_fits(call, past->dims[2]));
    const int64_t batch = past->dims[0];
    shifting s = {.bias = bias->data,
                  .rows = bias->dims[1] * bias->dims[2],
                  .columns = bias->dims[3],
                  .capacity = past->dims[2],
                  .window = ir_attr_int(call->node, "window"),
                  .shared = bias->dims[0] == 1,
                  .width = op_width(bias->dtype)};
    GQAC_TRY(attention_lengths(call, PAST_LEN, batch, &s.past_len));
    GQAC_TRY(attention_lengths(call, NEW_LEN, batch, &s.new_len));
    for (int64_t b = 0; b < batch; b++)
        if ((int64_t)s.past_len[b] + s.new_len[b] > s.columns)
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                    "attention_bias has %lld columns, sequence %lld has %lld tokens",
                    (long long)s.columns, (long long)b, (long long)s.past_len[b] + s.new_len[b]);
    s.count = attention_window_rows(call->node, s.capacity, batch, s.past_len, s.new_len);
    int64_t dims[4] = {batch, bias->dims[1], bias->dims[2], s.count};
    GQAC_TRY(op_output(call, 0, bias->dtype, 4, dims));
    s.y = call->out[0].data;
    if (gqac_tensor_count(&call->out[0]) > 0)
        op_parallel(call, batch * s.rows, 1 + s.count / 8, run, &s);
    return GQAC_OK;
}

const gqac_op gqac_op_window_bias = {
    .schema = {.name = "window_bias",
               .domain = "gqac",
               .since = 1,
               .inputs = "bias past past_len new_len",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "the columns of a bias [B|1,H|1,S,M] that belong to window_rows"},
    .infer = infer,
    .verify = attention_window_verify,
    .eval = eval,
};
