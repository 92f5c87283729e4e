/* present [B,H,C,D] of a window-sized cache from its past [B,H,C,D] and window_rows [B,H,R,D]: with
 * t = past_len[b] + new_len[b] tokens of which the cache holds e, rows 0 .. e-1 are the last e
 * tokens. Rows from e on are not valid; they are copies of the rows of past. */
#include "ops/attention.h"

#include <string.h>

enum { PAST, ROWS, PAST_LEN, NEW_LEN };

static const ir_attr_spec attrs[] = {
    {"window", IR_ATTR_INT, .required = true, .doc = "keys that must stay in the cache"},
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, PAST, 4, diag));
    GQAC_TRY(attention_want_rank(node, ROWS, 4, diag));
    GQAC_TRY(op_check_same(node, PAST, ROWS, diag));
    const ir_dim *dims[4];
    for (int i = 0; i < 4; i++)
        dims[i] = op_in_dim(node, PAST, i);
    return op_set_type(node, 0, op_in_type(node, PAST).dtype, 4, dims, diag);
}

typedef struct packing {
    const unsigned char *past, *rows;
    unsigned char *present;
    const int32_t *past_len, *new_len;
    int64_t heads, capacity, window, count;
    size_t row; /* bytes */
} packing;

/* Items are (b, head). */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const packing *s = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        int64_t b = (int64_t)i / s->heads, p = s->past_len[b], t = p + s->new_len[b];
        int64_t held = attention_resident(s->capacity, s->window, t);
        int64_t first = t - held - attention_window_start(s->capacity, s->window, p);
        size_t bytes = (size_t)held * s->row, all = (size_t)s->capacity * s->row;
        unsigned char *out = s->present + i * all;
        memcpy(out, s->rows + (i * (size_t)s->count + (size_t)first) * s->row, bytes);
        memcpy(out + bytes, s->past + i * all + bytes, all - bytes);
    }
}

static gqac_status eval(op_call *call) {
    const gqac_tensor *past = call->in[PAST], *rows = call->in[ROWS];
    GQAC_TRY(op_want_set(call, PAST, OP_ANY & ~OP_NIBBLES));
    GQAC_TRY(op_want(call, ROWS, past->dtype));
    if (past->rank != 4 || rows->rank != 4 || past->dims[0] != rows->dims[0] ||
        past->dims[1] != rows->dims[1] || past->dims[3] != rows->dims[3])
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "past and rows must be [B,H,C,D] and [B,H,R,D]");
    GQAC_TRY(attention_window_fits(call, past->dims[2]));
    packing s = {.past = past->data,
                 .rows = rows->data,
                 .heads = past->dims[1],
                 .capacity = past->dims[2],
                 .count = rows->dims[2],
                 .window = ir_attr_int(call->node, "window"),
                 .row = (size_t)past->dims[3] * op_width(past->dtype)};
    GQAC_TRY(attention_lengths(call, PAST_LEN, past->dims[0], &s.past_len));
    GQAC_TRY(attention_lengths(call, NEW_LEN, past->dims[0], &s.new_len));
    int64_t need =
        attention_window_rows(call->node, s.capacity, past->dims[0], s.past_len, s.new_len);
    if (need > s.count)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "%lld rows, but the lengths need %lld",
                (long long)s.count, (long long)need);
    GQAC_TRY(op_output_like(call, 0, past->dtype, past));
    s.present = call->out[0].data;
    if (gqac_tensor_count(past) > 0)
        op_parallel(call, past->dims[0] * s.heads, 1 + s.capacity * past->dims[3] / 8, run, &s);
    return GQAC_OK;
}

const gqac_op gqac_op_window_present = {
    .schema = {.name = "window_present",
               .domain = "gqac",
               .since = 1,
               .inputs = "past rows past_len new_len",
               .outputs = "present",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "the window-sized cache [B,H,C,D] after the call"},
    .infer = infer,
    .verify = attention_window_verify,
    .eval = eval,
};
