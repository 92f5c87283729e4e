/* rows [B,H,R,D] for attention from the past [B,H,C,D] of a window-sized cache and new [B,H,S,D]:
 * with p = past_len[b] tokens, of which the past holds e, and start as in window_start, row j is
 * the token at position start + j: from past for p - e <= start + j < p, then the first new_len[b]
 * of new. Earlier and later rows are zeros, which are not visible; R is the maximum over b. */
#include "ops/attention.h"

#include <string.h>

enum { PAST, NEW, PAST_LEN, NEW_LEN };

static const ir_attr_spec attrs[] = {
    {"window", IR_ATTR_INT, .required = true, .doc = "keys that must stay in the cache"},
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, PAST, 4, diag));
    GQAC_TRY(attention_want_rank(node, NEW, 4, diag));
    GQAC_TRY(op_check_same(node, PAST, NEW, diag));
    const ir_dim *dims[4] = {op_in_dim(node, NEW, 0), op_in_dim(node, NEW, 1), NULL,
                             op_in_dim(node, NEW, 3)};
    return op_set_type(node, 0, op_in_type(node, NEW).dtype, 4, dims, diag);
}

typedef struct staging {
    const unsigned char *past, *fresh;
    unsigned char *rows;
    const int32_t *past_len, *new_len;
    int64_t heads, capacity, new_rows, window, count;
    size_t row; /* bytes */
} staging;

/* Items are (b, head). */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const staging *s = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        int64_t b = (int64_t)i / s->heads, p = s->past_len[b];
        int64_t held = attention_resident(s->capacity, s->window, p);
        int64_t at = p - attention_window_start(s->capacity, s->window, p);
        unsigned char *out = s->rows + i * (size_t)s->count * s->row;
        memset(out, 0, (size_t)s->count * s->row);
        memcpy(out + (size_t)(at - held) * s->row, s->past + i * (size_t)s->capacity * s->row,
               (size_t)held * s->row);
        if (s->new_len[b] > 0)
            memcpy(out + (size_t)at * s->row, s->fresh + i * (size_t)s->new_rows * s->row,
                   (size_t)s->new_len[b] * s->row);
    }
}

static gqac_status eval(op_call *call) {
    const gqac_tensor *past = call->in[PAST], *fresh = call->in[NEW];
    GQAC_TRY(op_want_set(call, NEW, OP_ANY & ~OP_NIBBLES));
    GQAC_TRY(op_want(call, PAST, fresh->dtype));
    if (fresh->rank != 4 || past->rank != 4 || past->dims[0] != fresh->dims[0] ||
        past->dims[1] != fresh->dims[1] || past->dims[3] != fresh->dims[3])
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "past and new must be [B,H,C,D] and [B,H,S,D]");
    GQAC_TRY(attention_window_fits(call, past->dims[2]));
    staging s = {.past = past->data,
                 .fresh = fresh->data,
                 .heads = fresh->dims[1],
                 .capacity = past->dims[2],
                 .new_rows = fresh->dims[2],
                 .window = ir_attr_int(call->node, "window"),
                 .row = (size_t)fresh->dims[3] * op_width(fresh->dtype)};
    GQAC_TRY(attention_lengths(call, PAST_LEN, fresh->dims[0], &s.past_len));
    GQAC_TRY(attention_lengths(call, NEW_LEN, fresh->dims[0], &s.new_len));
    for (int64_t b = 0; b < fresh->dims[0]; b++)
        if (s.new_len[b] > s.new_rows)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "sequence %lld has %d new tokens, the new keys and values have %lld rows (a "
                    "window-sized cache cannot be shared by layers)",
                    (long long)b, s.new_len[b], (long long)s.new_rows);
    s.count = attention_window_rows(call->node, s.capacity, fresh->dims[0], s.past_len, s.new_len);
    int64_t dims[4] = {fresh->dims[0], s.heads, s.count, fresh->dims[3]};
    GQAC_TRY(op_output(call, 0, fresh->dtype, 4, dims));
    s.rows = call->out[0].data;
    if (gqac_tensor_count(&call->out[0]) > 0)
        op_parallel(call, dims[0] * dims[1], 1 + s.count * dims[3] / 8, run, &s);
    return GQAC_OK;
}

const gqac_op gqac_op_window_rows = {
    .schema = {.name = "window_rows",
               .domain = "gqac",
               .since = 1,
               .inputs = "past new past_len new_len",
               .outputs = "rows",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "rows [B,H,R,D] that attention over a window-sized cache sees"},
    .infer = infer,
    .verify = attention_window_verify,
    .eval = eval,
};
