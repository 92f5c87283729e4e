/* y from x [B,S,H], new_len [B] and which (i64 scalar): which 0 is all rows, y = x; which 1 is the
 * row of the last new token, y [B,1,H], y[b,0,:] = x[b, new_len[b] - 1, :]. It stands before the
 * matmul that makes logits, so that a prompt costs one row of them. */
#include "ops/attention.h"

#include <string.h>

enum { X, NEW_LEN, WHICH };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, X, 3, diag));
    GQAC_TRY(attention_want_dtype(node, NEW_LEN, GQAC_I32, diag));
    GQAC_TRY(attention_want_dtype(node, WHICH, GQAC_I64, diag));
    const ir_dim *dims[3] = {op_in_dim(node, X, 0), ir_dim_symbol(op_dims(node), "gqac.logit_rows"),
                             op_in_dim(node, X, 2)};
    return op_set_type(node, 0, op_in_type(node, X).dtype, 3, dims, diag);
}

typedef struct take {
    const unsigned char *x;
    unsigned char *y;
    const int32_t *new_len; /* NULL: all rows */
    size_t rows, row;       /* of x; bytes of a row */
} take;

/* Items are rows of y. */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const take *t = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        const size_t from = t->new_len ? i * t->rows + (size_t)t->new_len[i] - 1 : i;
        memcpy(t->y + i * t->row, t->x + from * t->row, t->row);
    }
}

static gqac_status eval(op_call *call) {
    int64_t which;
    const int32_t *new_len;
    GQAC_TRY(op_want_set(call, X, OP_ANY & ~OP_NIBBLES));
    GQAC_TRY(op_int(call, WHICH, &which));
    const gqac_tensor *x = call->in[X];
    if (x->rank != 3)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "x must have rank 3");
    GQAC_TRY(attention_lengths(call, NEW_LEN, x->dims[0], &new_len));
    if (which != 0 && which != 1)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "which = %lld: 0 or 1",
                (long long)which);
    for (int64_t b = 0; which && b < x->dims[0]; b++)
        if (new_len[b] < 1 || new_len[b] > x->dims[1])
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                    "batch row %lld has %d new tokens of %lld", (long long)b, new_len[b],
                    (long long)x->dims[1]);
    const int64_t dims[3] = {x->dims[0], which ? 1 : x->dims[1], x->dims[2]};
    GQAC_TRY(op_output(call, 0, x->dtype, 3, dims));
    take t = {.x = x->data,
              .y = call->out[0].data,
              .new_len = which ? new_len : NULL,
              .rows = (size_t)x->dims[1],
              .row = (size_t)x->dims[2] * op_width(x->dtype)};
    if (gqac_tensor_count(&call->out[0]) > 0)
        op_parallel(call, dims[0] * dims[1], 1 + dims[2] / 8, run, &t);
    return GQAC_OK;
}

const gqac_op gqac_op_take_rows = {
    .schema = {.name = "take_rows",
               .domain = "gqac",
               .since = 1,
               .inputs = "x new_len which",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "x [B,S,H] (which 0), or only its rows new_len[b] - 1 as [B,1,H] (which 1)"},
    .infer = infer,
    .eval = eval,
};
