/* Moving elements of any type: strided boxes, and plain copies under another shape.
 *
 * Bits are moved, never interpreted. A box is copied axis by axis. Axes that are contiguous on both
 * sides are merged first, so that the last one is usually a plain memory copy. */
#include "ops/copy.h"

#include <string.h>

gqac_status op_copy_output(op_call *call, int index, gqac_dtype dtype, int rank,
                           const int64_t *dims) {
    GQAC_TRY(op_output(call, index, dtype, rank, dims));
    gqac_tensor *out = &call->out[index];
    size_t bytes = gqac_tensor_bytes(out);
    if (OP_IN(OP_NIBBLES, dtype) &&
        bytes > 0) /* written in halves of a byte; the last element may be alone in its byte */
        memset(out->data, 0, bytes);
    return GQAC_OK;
}

gqac_status op_copy_as(op_call *call, int rank, const int64_t *dims) {
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    const gqac_tensor *in = call->in[0];
    GQAC_TRY(op_output(call, 0, in->dtype, rank, dims));
    size_t bytes = gqac_tensor_bytes(in);
    if (bytes == 0 || call->out[0].data == in->data)
        return GQAC_OK;
    if (call->move) {
        const op_box all = {.rank = 1,
                            .dims = {gqac_tensor_count(in)},
                            .in = in,
                            .out = &call->out[0],
                            .stride_in = {1},
                            .stride_out = {1}};
        return call->move(call, &all);
    }
    memcpy(call->out[0].data, in->data, bytes);
    return GQAC_OK;
}

/* Drops axes of length 1 and merges neighbours; false when the box is empty. */
static bool simplify(op_box *box) {
    int top = -1;
    for (int i = 0; i < box->rank; i++) {
        if (box->dims[i] <= 0)
            return false;
        if (box->dims[i] == 1)
            continue;
        int64_t n = box->dims[i], in = box->stride_in[i], out = box->stride_out[i];
        bool merge = top >= 0 && box->stride_in[top] == in * n && box->stride_out[top] == out * n;
        top += merge ? 0 : 1;
        box->dims[top] = merge ? box->dims[top] * n : n;
        box->stride_in[top] = in;
        box->stride_out[top] = out;
    }
    box->rank = top + 1;
    if (box->rank == 0) {
        box->rank = 1;
        box->dims[0] = 1;
        box->stride_in[0] = box->stride_out[0] = 1;
    }
    return true;
}

/* NOLINTBEGIN(bugprone-macro-parentheses): a type cannot have parentheses */
#define COPY_ROW(type)                                                                             \
    do {                                                                                           \
        const type *from = (const type *)box->in->data + in;                                       \
        type *to = (type *)box->out->data + out;                                                   \
        for (int64_t i = 0; i < n; i++)                                                            \
            to[i * so] = from[i * si];                                                             \
    } while (0)
/* NOLINTEND(bugprone-macro-parentheses) */

static void copy_row(const op_box *box, int64_t in, int64_t out) {
    int64_t n = box->dims[box->rank - 1];
    int64_t si = box->stride_in[box->rank - 1], so = box->stride_out[box->rank - 1];
    size_t width = op_width(box->in->dtype);
    if (width == 0) {
        for (int64_t i = 0; i < n; i++)
            op_put_i64(box->out, out + i * so, op_get_i64(box->in, in + i * si));
        return;
    }
    if (si == 1 && so == 1) {
        const unsigned char *from = box->in->data;
        unsigned char *to = box->out->data;
        memcpy(to + (size_t)out * width, from + (size_t)in * width, (size_t)n * width);
        return;
    }
    switch (width) {
    case 1:
        COPY_ROW(uint8_t);
        break;
    case 2:
        COPY_ROW(uint16_t);
        break;
    case 4:
        COPY_ROW(uint32_t);
        break;
    default:
        COPY_ROW(uint64_t);
        break;
    }
}

static void copy_rows(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const op_box *box = arg;
    int64_t index[OP_BOX_RANK] = {0}, in = box->first_in, out = box->first_out;
    int64_t row = (int64_t)begin;
    for (int i = box->rank - 2; i >= 0; i--) {
        index[i] = row % box->dims[i];
        row /= box->dims[i];
        in += index[i] * box->stride_in[i];
        out += index[i] * box->stride_out[i];
    }
    for (size_t item = begin; item < end; item++) {
        copy_row(box, in, out);
        for (int i = box->rank - 2; i >= 0; i--) {
            in += box->stride_in[i];
            out += box->stride_out[i];
            if (++index[i] < box->dims[i])
                break;
            in -= box->dims[i] * box->stride_in[i];
            out -= box->dims[i] * box->stride_out[i];
            index[i] = 0;
        }
    }
}

void op_box_copy(op_call *call, const op_box *original) {
    op_box box = *original;
    if (!simplify(&box))
        return;
    int64_t rows = op_product(box.dims, 0, box.rank - 1);
    if (op_width(box.in->dtype) == 0) /* two elements share a byte: one owner */
        copy_rows(&box, 0, (size_t)rows, 0);
    else
        op_parallel(call, rows, 10 + box.dims[box.rank - 1] / 4, copy_rows, &box);
}

gqac_status op_move(op_call *call, const op_box *original) {
    op_box box = *original;
    if (call->move)
        return simplify(&box) ? call->move(call, &box) : GQAC_OK;
    op_box_copy(call, original);
    return GQAC_OK;
}
