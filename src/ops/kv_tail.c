/* kv_tail (kv_tail.h) on rows in a tensor. */
#include "ops/kv_tail.h"

#include <string.h>

#include "ops/attention.h"

enum { ROWS, PAST };

static const ir_attr_spec attrs[] = {
    {"length", IR_ATTR_INT, .required = true, .doc = "rows of the state"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    return op_check_int(node, "length", 1, INT32_MAX, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, ROWS, 4, diag));
    GQAC_TRY(attention_want_dtype(node, PAST, GQAC_I32, diag));
    const ir_dim *dims[3] = {op_in_dim(node, ROWS, 0), op_in_dim(node, ROWS, 3),
                             ir_dim_const(op_dims(node), ir_attr_int(node, "length"))};
    return op_set_type(node, 0, op_in_type(node, ROWS).dtype, 3, dims, diag);
}

gqac_status kv_tail_fit(const op_work *work, const gqac_tensor *rows, const gqac_tensor *past_len,
                        const int32_t **past) {
    if (!rows || rows->rank != 4 || rows->dims[1] != 1 || !OP_IN(OP_FLOATS, rows->dtype))
        OP_STOP(work, GQAC_INVALID_INPUT, "rows must be floats of the shape [B,1,T,C]");
    GQAC_TRY(op_lengths(work, past_len, "past_len", rows->dims[0], past));
    for (int64_t b = 0; b < rows->dims[0]; b++)
        if ((*past)[b] > rows->dims[2])
            OP_STOP(work, GQAC_OUT_OF_RANGE, "past_len[%lld] = %d is more than the %lld rows",
                    (long long)b, (*past)[b], (long long)rows->dims[2]);
    return GQAC_OK;
}

gqac_tensor kv_tail_shape(const gqac_tensor *rows, int64_t length) {
    return (gqac_tensor){
        .dtype = rows->dtype, .rank = 3, .dims = {rows->dims[0], rows->dims[3], length}};
}

void kv_tail_clear(gqac_tensor *y) {
    memset(y->data, 0, gqac_tensor_bytes(y));
}

void kv_tail_put(gqac_tensor *y, int64_t b, int64_t at, const void *row, size_t width) {
    const int64_t channels = y->dims[1], length = y->dims[2];
    char *to = (char *)y->data + (size_t)(b * channels * length + at) * width;
    for (int64_t c = 0; c < channels; c++)
        memcpy(to + (size_t)(c * length) * width, (const char *)row + (size_t)c * width, width);
}

void kv_tail_copy(gqac_tensor *y, const gqac_tensor *rows, const int32_t *past) {
    const int64_t length = y->dims[2];
    const size_t width = op_width(rows->dtype), row_bytes = (size_t)rows->dims[3] * width;
    for (int64_t b = 0; b < rows->dims[0]; b++)
        for (int64_t at = 0; at < length; at++) {
            const int64_t row = past[b] - length + at;
            if (row >= 0)
                kv_tail_put(y, b, at,
                            (const char *)rows->data +
                                (size_t)(b * rows->dims[2] + row) * row_bytes,
                            width);
        }
}

static gqac_status eval(op_call *call) {
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    const int32_t *past;
    GQAC_TRY(verify(call->node, call->diag));
    GQAC_TRY(kv_tail_fit(&work, call->in[ROWS], call->in[PAST], &past));
    const gqac_tensor shape = kv_tail_shape(call->in[ROWS], ir_attr_int(call->node, "length"));
    GQAC_TRY(op_output_like(call, 0, shape.dtype, &shape));
    kv_tail_clear(&call->out[0]);
    kv_tail_copy(&call->out[0], call->in[ROWS], past);
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
