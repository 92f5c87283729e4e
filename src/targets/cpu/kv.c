/* kv_append of the cpu target: new rows are written to the blocks of the sequences; plain rows
 * [n,H,T,D] are gathered only if a node other than attention reads them. Also kv_tail, which may
 * read blocks. */
#include "targets/cpu/kv.h"

#include "ops/kv_tail.h"
#include "targets/kv_rows.h"

typedef struct appending {
    const kv_batch *kv;
    const gqac_tensor *rows;
    int slot;
    size_t row_bytes;
    int64_t total;
    char *gathered; /* NULL: not used */
} appending;

/* Items are (sequence, head). */
static void append(void *arg, size_t begin, size_t end, int worker) {
    const appending *a = arg;
    const int64_t heads = a->rows->dims[1], new_rows = a->rows->dims[2];
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        const int64_t b = (int64_t)item / heads, h = (int64_t)item % heads;
        kv_sequence *sequence = a->kv->sequences[b];
        const int64_t row = (kv_batch_row(a->kv, b) * heads + h) * new_rows + a->kv->begin[b];
        const char *from = (const char *)a->rows->data + (size_t)row * a->row_bytes;
        kv_write_head(sequence, a->slot, h, a->kv->past[b], a->kv->count[b], from);
        if (a->gathered)
            kv_read_head(sequence, a->slot, h, 0, a->kv->past[b] + a->kv->count[b],
                         a->gathered + item * (size_t)a->total * a->row_bytes);
    }
}

/* token, new [B,H,S,D], past_len [n], new_len [n] -> token, rows [n,H,T,D], T = max(past + new). */
gqac_status cpu_kv_append_run(target_call *call, const void *record) {
    const cpu_kv_append_record *r = record;
    const gqac_tensor *rows = target_value(call, r->fresh);
    const kv_batch *kv = call->kv;
    GQAC_TRY(target_kv_fit(call, &call->work, rows, r->slot));
    appending a = {.kv = kv,
                   .rows = rows,
                   .slot = r->slot,
                   .row_bytes = (size_t)rows->dims[3] * op_width(rows->dtype),
                   .total = target_kv_total_rows(kv)};
    gqac_tensor y = {
        .dtype = rows->dtype, .rank = 4, .dims = {kv->n, rows->dims[1], a.total, rows->dims[3]}};
    target_give_token(call, r->token);
    if (r->only_blocks) {
        target_set(call, r->rows, &y);
    } else {
        GQAC_TRY(target_give(call, r->rows, &y));
        a.gathered = y.data;
    }
    const int64_t moved = a.gathered ? a.total : rows->dims[2];
    op_work_parallel(&call->work, kv->n * rows->dims[1], 1 + moved * (int64_t)a.row_bytes / 8,
                     append, &a);
    return GQAC_OK;
}

/* Reads the rows before the new ones, one at a time. */
static gqac_status tail_of_blocks(const target_call *call, const cpu_kv_tail_record *r,
                                  const gqac_tensor *rows, const int32_t *past, gqac_tensor *y) {
    const size_t width = op_width(rows->dtype);
    op_scratch scratch;
    GQAC_TRY(op_work_scratch(&call->work, (size_t)rows->dims[3], width, &scratch));
    for (int b = 0; b < call->kv->n; b++)
        for (int64_t at = 0; at < r->length; at++) {
            const int64_t row = past[b] - r->length + at;
            if (row < 0)
                continue;
            kv_read_rows(call->kv->sequences[b], r->slot, row, 1, scratch.base, 1);
            kv_tail_put(y, b, at, scratch.base, width);
        }
    op_scratch_close(&scratch);
    return GQAC_OK;
}

gqac_status cpu_kv_tail_run(target_call *call, const void *record) {
    const cpu_kv_tail_record *r = record;
    const gqac_tensor *rows = target_value(call, r->rows);
    const int32_t *past;
    GQAC_TRY(kv_tail_fit(&call->work, rows, target_value(call, r->past_len), &past));
    gqac_tensor y = kv_tail_shape(rows, r->length);
    GQAC_TRY(target_give(call, r->state, &y));
    kv_tail_clear(&y);
    if (call->kv && r->slot >= 0)
        return tail_of_blocks(call, r, rows, past, &y);
    kv_tail_copy(&y, rows, past);
    return GQAC_OK;
}

gqac_status cpu_kv_tail_scratch(const target_call *call, int threads, const void *record,
                                gqac_parts *parts) {
    const cpu_kv_tail_record *r = record;
    const gqac_tensor *rows = target_value(call, r->rows);
    if (call->kv && r->slot >= 0)
        op_scratch_measure(parts, threads, (size_t)rows->dims[3], op_width(rows->dtype));
    return GQAC_OK;
}
