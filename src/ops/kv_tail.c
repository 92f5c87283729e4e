/* kv_tail (kv_tail.h) over plain rows. */
#include "ops/kv_tail.h"

#include <string.h>

#include "ops/attention.h"

enum { ROWS, PAST };

static const ir_attr_spec attrs[] = {
    {"length", IR_ATTR_INT, .required = true, .doc = "rows of the state"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const int64_t length = ir_attr_int(node, "length");
    if (length < 1 || length > INT32_MAX)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute length = %lld: 1 to 2147483647",
                (long long)length);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, ROWS, 4, diag));
    GQAC_TRY(attention_want_dtype(node, PAST, GQAC_I32, diag));
    const ir_dim *dims[3] = {op_in_dim(node, ROWS, 0), op_in_dim(node, ROWS, 3),
                             ir_dim_const(op_dims(node), ir_attr_int(node, "length"))};
    return op_set_type(node, 0, op_in_type(node, ROWS).dtype, 3, dims, diag);
}

gqac_status kv_tail_open(op_call *call, const int32_t **past) {
    const gqac_tensor *rows = call->in[ROWS];
    GQAC_TRY(verify(call->node, call->diag));
    if (rows->rank != 4 || rows->dims[1] != 1)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "rows must have the shape [B,1,T,C]");
    GQAC_TRY(attention_lengths(call, PAST, rows->dims[0], past));
    for (int64_t b = 0; b < rows->dims[0]; b++)
        if ((*past)[b] > rows->dims[2])
            OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                    "past_len[%lld] = %d is more than the %lld rows", (long long)b, (*past)[b],
                    (long long)rows->dims[2]);
    const int64_t dims[3] = {rows->dims[0], rows->dims[3], ir_attr_int(call->node, "length")};
    GQAC_TRY(op_output(call, 0, rows->dtype, 3, dims));
    memset(call->out[0].data, 0, gqac_tensor_bytes(&call->out[0]));
    return GQAC_OK;
}

void kv_tail_put(op_call *call, int64_t b, int64_t at, const void *row, size_t width) {
    const int64_t channels = call->out[0].dims[1], length = call->out[0].dims[2];
    char *to = (char *)call->out[0].data + (size_t)(b * channels * length + at) * width;
    for (int64_t c = 0; c < channels; c++)
        memcpy(to + (size_t)(c * length) * width, (const char *)row + (size_t)c * width, width);
}

static gqac_status eval(op_call *call) {
    const int32_t *past;
    GQAC_TRY(op_want_set(call, ROWS, OP_FLOATS));
    GQAC_TRY(kv_tail_open(call, &past));
    const gqac_tensor *rows = call->in[ROWS];
    const int64_t length = ir_attr_int(call->node, "length");
    const size_t width = (size_t)gqac_dtype_bits(rows->dtype) / 8;
    const size_t row_bytes = (size_t)rows->dims[3] * width;
    for (int64_t b = 0; b < rows->dims[0]; b++)
        for (int64_t at = 0; at < length; at++) {
            const int64_t row = past[b] - length + at;
            if (row >= 0)
                kv_tail_put(call, b, at,
                            (const char *)rows->data +
                                (size_t)(b * rows->dims[2] + row) * row_bytes,
                            width);
        }
    return GQAC_OK;
}

const gqac_op gqac_op_kv_tail = {
    .schema = {.name = "kv_tail",
               .domain = "gqac",
               .since = 1,
               .inputs = "rows past_len",
               .outputs = "state",
               .attrs = attrs,
               .rows = IR_ROWS_STATE,
               .doc = "the rows of [B,1,T,C] before past_len[b], as columns [B,C,length]"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
