/* y [1,K,H] from x [B,S,H] and rows i64 [K]: y[0,i,:] is row rows[i] of all B*S rows of x. The pass
 * last_rows puts it before the matmul that makes logits, so that a step computes only the rows that
 * it is asked for. */
#include "ops/attention.h"

#include <string.h>

enum { X, ROWS };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, X, 3, diag));
    GQAC_TRY(attention_want_rank(node, ROWS, 1, diag));
    GQAC_TRY(attention_want_dtype(node, ROWS, GQAC_I64, diag));
    const ir_dim *dims[3] = {ir_dim_const(op_dims(node), 1), op_in_dim(node, ROWS, 0),
                             op_in_dim(node, X, 2)};
    return op_set_type(node, 0, op_in_type(node, X).dtype, 3, dims, diag);
}

typedef struct take {
    const unsigned char *x;
    unsigned char *y;
    const int64_t *rows;
    size_t row; /* bytes of a row */
} take;

/* Items are rows of y. */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const take *t = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++)
        memcpy(t->y + i * t->row, t->x + (size_t)t->rows[i] * t->row, t->row);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, X, OP_ANY & ~OP_NIBBLES));
    GQAC_TRY(op_want(call, ROWS, GQAC_I64));
    const gqac_tensor *x = call->in[X], *rows = call->in[ROWS];
    if (x->rank != 3 || rows->rank != 1)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "x must have rank 3 and rows rank 1");
    const int64_t most = x->dims[0] * x->dims[1];
    take t = {.x = x->data, .rows = rows->data, .row = (size_t)x->dims[2] * op_width(x->dtype)};
    for (int64_t i = 0; i < rows->dims[0]; i++)
        if (t.rows[i] < 0 || t.rows[i] >= most)
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                    "row %lld is out of range: x has %lld rows", (long long)t.rows[i],
                    (long long)most);
    GQAC_TRY(op_output(call, 0, x->dtype, 3, (int64_t[]){1, rows->dims[0], x->dims[2]}));
    t.y = call->out[0].data;
    if (t.row > 0)
        op_parallel(call, rows->dims[0], 1 + x->dims[2] / 8, run, &t);
    return GQAC_OK;
}

const gqac_op gqac_op_take_rows = {
    .schema = {.name = "take_rows",
               .domain = "gqac",
               .since = 1,
               .inputs = "x rows",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "selected rows of the B*S rows of x [B,S,H], as [1,K,H]"},
    .infer = infer,
    .eval = eval,
};
