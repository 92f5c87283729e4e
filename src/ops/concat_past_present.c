/* present [B,H,C,D], C = max(total, P), from past [B,H,P,D] and new [B,H,S,D]:
 *   rows [0, p_b) are past's, rows [p_b, p_b + n_b) the first n_b rows of new; later rows are
 * past's where past has them, else zero. Rows of new from n_b on (padding) are not copied. A new
 * without any rows appends nothing: another layer has written the rows of these tokens to the past,
 * so total <= P. Present may overwrite past if the capacities are equal (C = P): then only new rows
 * are written.
 */
#include "ops/present.h"

#include <string.h>

#include "ops/attention.h"

enum { PAST, NEW, PAST_LEN, NEW_LEN, TOTAL };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, NEW, 4, diag));
    GQAC_TRY(attention_want_rank(node, PAST, 4, diag));
    GQAC_TRY(op_check_same(node, PAST, NEW, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, PAST, 1), op_in_dim(node, NEW, 1),
                                "heads of the past", diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, PAST, 3), op_in_dim(node, NEW, 3),
                                "head size of the past", diag));
    const ir_dim *dims[4] = {op_in_dim(node, NEW, 0), op_in_dim(node, NEW, 1),
                             attention_capacity(node, TOTAL, PAST), op_in_dim(node, NEW, 3)};
    return op_set_type(node, 0, op_in_type(node, NEW).dtype, 4, dims, diag);
}

void present_keep(const present_rows *c, int64_t b, int64_t head) {
    const size_t p = (size_t)c->past_len[b], kept = (size_t)c->past_rows;
    const size_t end = c->new_rows > 0 ? p + (size_t)c->new_len[b] : p;
    const size_t held = end > kept ? end : kept;
    const size_t item = (size_t)(b * c->heads + head);
    unsigned char *out = c->present + item * (size_t)c->capacity * c->row;
    if (c->present == c->past || c->capacity == 0)
        return;
    const unsigned char *past = c->past + item * kept * c->row;
    if (p > 0)
        memcpy(out, past, p * c->row);
    if (end < kept)
        memcpy(out + end * c->row, past + end * c->row, (kept - end) * c->row);
    memset(out + held * c->row, 0, ((size_t)c->capacity - held) * c->row);
}

typedef struct concat {
    present_rows rows;
    const unsigned char *fresh;
} concat;

/* Items are (b, head). */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const concat *c = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        const int64_t b = (int64_t)i / c->rows.heads, head = (int64_t)i % c->rows.heads;
        const size_t row = c->rows.row;
        present_keep(&c->rows, b, head);
        if (c->rows.new_rows > 0 && c->rows.new_len[b] > 0)
            memcpy(present_row(&c->rows, b, head, 0), c->fresh + i * (size_t)c->rows.new_rows * row,
                   (size_t)c->rows.new_len[b] * row);
    }
}

static gqac_status check_lengths(const op_work *work, const present_rows *c, int64_t batch) {
    if (c->new_rows == 0 && c->capacity > c->past_rows)
        OP_STOP(work, GQAC_OUT_OF_RANGE,
                "keys and values without rows share those of the past: total_sequence_length %lld "
                "exceeds its %lld rows",
                (long long)c->capacity, (long long)c->past_rows);
    for (int64_t b = 0; b < batch; b++) {
        long long p = c->past_len[b], n = c->new_len[b];
        if (n > c->new_rows && c->new_rows > 0)
            OP_STOP(work, GQAC_INVALID_INPUT,
                    "sequence %lld has %lld new tokens, the new keys and values have %lld rows",
                    (long long)b, n, (long long)c->new_rows);
        if (p > c->past_rows || p + n > c->capacity)
            OP_STOP(work, GQAC_OUT_OF_RANGE,
                    "sequence %lld: %lld past and %lld new rows; the past has %lld, the capacity "
                    "is %lld",
                    (long long)b, p, n, (long long)c->past_rows, (long long)c->capacity);
    }
    return GQAC_OK;
}

gqac_status present_fit(const op_work *work, const present_operands *o, present_rows *c) {
    const gqac_tensor *past = o->past, *fresh = o->fresh, *length = o->total;
    if (!fresh || !OP_IN(OP_ANY & ~OP_NIBBLES, fresh->dtype))
        OP_STOP(work, GQAC_INVALID_INPUT, "input 'new' is missing, or has no rows to copy");
    if (!length || !OP_IN(OP_INTS | OP_BIT(BOOL), length->dtype) || gqac_tensor_count(length) != 1)
        OP_STOP(work, GQAC_INVALID_INPUT, "input 'total' is not a single integer");
    const int64_t total = op_get_i64(length, 0);
    if (past && past->dtype != fresh->dtype)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "input 'past' has the type %s, which is not that of 'new'",
                gqac_dtype_name(past->dtype));
    if (fresh->rank != 4 || (past && past->rank != 4))
        OP_STOP(work, GQAC_INVALID_INPUT, "past and new must have rank 4");
    if (past && (past->dims[0] != fresh->dims[0] || past->dims[1] != fresh->dims[1] ||
                 past->dims[3] != fresh->dims[3]))
        OP_STOP(work, GQAC_INVALID_INPUT,
                "past [%lld,%lld,%lld,%lld] does not fit new [%lld,%lld,%lld,%lld]",
                (long long)past->dims[0], (long long)past->dims[1], (long long)past->dims[2],
                (long long)past->dims[3], (long long)fresh->dims[0], (long long)fresh->dims[1],
                (long long)fresh->dims[2], (long long)fresh->dims[3]);
    *c = (present_rows){.past = past ? past->data : NULL,
                        .heads = fresh->dims[1],
                        .past_rows = past ? past->dims[2] : 0,
                        .new_rows = fresh->dims[2],
                        .row = (size_t)fresh->dims[3] * op_width(fresh->dtype)};
    c->capacity = total > c->past_rows ? total : c->past_rows;
    GQAC_TRY(op_lengths(work, o->past_len, "past_len", fresh->dims[0], &c->past_len));
    GQAC_TRY(op_lengths(work, o->new_len, "new_len", fresh->dims[0], &c->new_len));
    return check_lengths(work, c, fresh->dims[0]);
}

gqac_status present_put(const op_work *work, present_rows *c, void *memory) {
    c->present = memory;
    if (c->present == c->past && c->capacity > c->past_rows)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "present overwrites past, which has %lld rows for %lld tokens",
                (long long)c->past_rows, (long long)c->capacity);
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    concat c;
    const gqac_tensor *fresh = call->in[NEW];
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    GQAC_TRY(op_want_set(call, NEW, OP_ANY & ~OP_NIBBLES));
    const present_operands operands = {.past = call->in[PAST],
                                       .fresh = fresh,
                                       .past_len = call->in[PAST_LEN],
                                       .new_len = call->in[NEW_LEN],
                                       .total = call->in[TOTAL]};
    GQAC_TRY(present_fit(&work, &operands, &c.rows));
    const int64_t dims[4] = {fresh->dims[0], c.rows.heads, c.rows.capacity, fresh->dims[3]};
    GQAC_TRY(op_output(call, 0, fresh->dtype, 4, dims));
    GQAC_TRY(present_put(&work, &c.rows, call->out[0].data));
    c.fresh = fresh->data;
    if (gqac_tensor_count(&call->out[0]) > 0)
        op_parallel(call, dims[0] * dims[1], 1 + dims[2] * dims[3] / 8, run, &c);
    return GQAC_OK;
}

const gqac_op gqac_op_concat_past_present = {
    .schema = {.name = "concat_past_present",
               .domain = "gqac",
               .since = 1,
               .inputs = "past? new past_len new_len total",
               .outputs = "present",
               .flags = IR_OP_IN_PLACE,
               .rows = IR_ROWS_STATE,
               .doc = "present [B,H,max(total,P),D]: past's first past_len[b] rows, then new's "
                      "first new_len[b]"},
    .infer = infer,
    .eval = eval,
};
