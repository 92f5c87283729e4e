/* KV state as plain rows: see kv_rows.h. */
#include "targets/kv_rows.h"

#include <string.h>

void target_give_token(target_call *call, int value) {
    target_set(call, value, &(gqac_tensor){.dtype = GQAC_TOKEN});
}

/* kv_state: nothing to compute; the token orders the appends of its slot. */
gqac_status target_kv_state_run(target_call *call, const void *record) {
    const target_state_record *r = record;
    target_give_token(call, r->token);
    return GQAC_OK;
}

int64_t target_kv_total_rows(const kv_batch *kv) {
    int64_t total = 0;
    for (int b = 0; b < kv->n; b++)
        if (kv->past[b] + kv->count[b] > total)
            total = kv->past[b] + kv->count[b];
    return total;
}

gqac_status target_kv_fit(const target_call *call, const op_work *work, const gqac_tensor *rows,
                          int slot) {
    const kv_batch *kv = call->kv;
    if (!kv || !rows || rows->rank != 4)
        OP_STOP(work, GQAC_INTERNAL, "kv_append can only run in a step of a sequence");
    const kv_slot *of = kv_sequence_slot(kv->sequences[0], slot);
    bool fits = of && rows->dims[0] == (kv->packed ? 1 : kv->n) && rows->dims[1] == of->heads &&
                rows->dims[3] == of->head_size && rows->dtype == of->dtype;
    for (int b = 0; b < kv->n; b++)
        fits = fits && kv->begin[b] + kv->count[b] <= rows->dims[2];
    if (!fits)
        OP_STOP(work, GQAC_INVALID_MODEL, "kv_append: %s[%lld,%lld,%lld,%lld] does not fit slot %d",
                gqac_dtype_name(rows->dtype), (long long)rows->dims[0], (long long)rows->dims[1],
                (long long)rows->dims[2], (long long)rows->dims[3], slot);
    return GQAC_OK;
}

int64_t target_kv_begin(const kv_batch *kv, int64_t b) {
#ifdef GQAC_CONTROL_PACKED_BEGIN /* negative control: rows of a neighbour are cached */
    return kv->begin[b] - (b > 0);
#else
    return kv->begin[b];
#endif
}

void target_kv_write(const kv_batch *kv, const gqac_tensor *rows, int slot) {
    const size_t row_bytes = (size_t)rows->dims[3] * op_width(rows->dtype);
    const size_t batch_bytes = (size_t)(rows->dims[1] * rows->dims[2]) * row_bytes;
    for (int b = 0; b < kv->n; b++) {
        const size_t begin = (size_t)target_kv_begin(kv, b);
        const char *from = (const char *)rows->data + (size_t)kv_batch_row(kv, b) * batch_bytes +
                           begin * row_bytes;
        kv_write_rows(kv->sequences[b], slot, kv->past[b], kv->count[b], from, rows->dims[2]);
    }
}

/* token, new [B,H,S,D], past_len [n], new_len [n] -> token, rows [n,H,T,D], T = max(past + new).
 * Sequence b gets its new rows (kv_batch) at past_len[b]; then its past and new rows are gathered.
 * Rows of the result at or after past + new are unspecified, and nothing reads them. */
gqac_status target_kv_append_run(target_call *call, const void *record) {
    const target_append_record *r = record;
    const gqac_tensor *rows = target_value(call, r->fresh);
    const kv_batch *kv = call->kv;
    GQAC_TRY(target_kv_fit(call, &call->work, rows, r->slot));
    const int64_t heads = rows->dims[1], width = rows->dims[3];
    const int64_t total = target_kv_total_rows(kv);
    gqac_tensor y = {.dtype = rows->dtype, .rank = 4, .dims = {kv->n, heads, total, width}};
    target_give_token(call, r->token);
    if (r->only_blocks)
        target_set(call, r->rows, &y);
    else
        GQAC_TRY(target_give(call, r->rows, &y));
    target_kv_write(kv, rows, r->slot);
    const size_t out_bytes = (size_t)(heads * total * width) * op_width(rows->dtype);
    for (int b = 0; y.data && b < kv->n; b++)
        kv_read_rows(kv->sequences[b], r->slot, 0, kv->past[b] + kv->count[b],
                     (char *)y.data + (size_t)b * out_bytes, total);
    return GQAC_OK;
}
