/* y [1,N,C] from x [n,M,C] and new_len [n]: the first new_len[i] rows of each i, one after another.
 * infer takes N from the type of `like` [1,H,N,D]; its elements are not read. */
#include "ops/attention.h"

#include <string.h>

enum { X, NEW_LEN, LIKE };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, X, 3, diag));
    GQAC_TRY(attention_want_dtype(node, NEW_LEN, GQAC_I32, diag));
    GQAC_TRY(attention_want_rank(node, LIKE, 4, diag));
    const ir_dim *dims[3] = {ir_dim_const(op_dims(node), 1), op_in_dim(node, LIKE, 2),
                             op_in_dim(node, X, 2)};
    return op_set_type(node, 0, op_in_type(node, X).dtype, 3, dims, diag);
}

static gqac_status eval(op_call *call) {
    const gqac_tensor *x = call->in[X];
    const int32_t *fresh;
    int64_t sum = 0;
    GQAC_TRY(op_want_set(call, X, OP_ANY & ~OP_NIBBLES));
    if (x->rank != 3)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "x must have rank 3");
    GQAC_TRY(attention_lengths(call, NEW_LEN, x->dims[0], &fresh));
    for (int64_t i = 0; i < x->dims[0]; i++) {
        if (fresh[i] > x->dims[1])
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                    "sequence %lld has %d new tokens of %lld rows", (long long)i, fresh[i],
                    (long long)x->dims[1]);
        sum += fresh[i];
    }
    GQAC_TRY(op_output(call, 0, x->dtype, 3, (int64_t[]){1, sum, x->dims[2]}));
    const size_t row = (size_t)x->dims[2] * op_width(x->dtype);
    char *to = call->out[0].data;
    for (int64_t i = 0; i < x->dims[0]; i++) {
        const size_t bytes = (size_t)fresh[i] * row;
        memcpy(to, (const char *)x->data + (size_t)(i * x->dims[1]) * row, bytes);
        to += bytes;
    }
    return GQAC_OK;
}

const gqac_op gqac_op_pack_rows = {
    .schema = {.name = "pack_rows",
               .domain = "gqac",
               .since = 1,
               .inputs = "x new_len like",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "the rows s < new_len[i] of x [n,M,C], one after another: [1,N,C]"},
    .infer = infer,
    .eval = eval,
};
