/* KV state as plain rows: kernels for targets that gather the blocks of a sequence into [B,H,T,D].
 */
#include "targets/target.h"

#include <string.h>

/* kv_state: nothing to compute; the token orders the appends of its slot. */
gqac_status target_kv_state(op_call *call) {
    return op_output(call, 0, GQAC_TOKEN, 0, NULL);
}

int64_t target_kv_total_rows(const kv_batch *kv) {
    int64_t total = 0;
    for (int b = 0; b < kv->n; b++)
        if (kv->past[b] + kv->count[b] > total)
            total = kv->past[b] + kv->count[b];
    return total;
}

gqac_status target_kv_check_rows(const op_call *call, const gqac_tensor *rows, int64_t index) {
    const kv_batch *kv = call->kv;
    const kv_slot *slot = kv_sequence_slot(kv->sequences[0], index);
    bool fits = slot && rows->dims[0] == (kv->packed ? 1 : kv->n) && rows->dims[1] == slot->heads &&
                rows->dims[3] == slot->head_size && rows->dtype == slot->dtype;
    for (int b = 0; b < kv->n; b++)
        fits = fits && kv->begin[b] + kv->count[b] <= rows->dims[2];
    if (!fits)
        GQAC_FAIL(call->diag, GQAC_INVALID_MODEL,
                  "kv_append: %s[%lld,%lld,%lld,%lld] does not fit slot %lld",
                  gqac_dtype_name(rows->dtype), (long long)rows->dims[0], (long long)rows->dims[1],
                  (long long)rows->dims[2], (long long)rows->dims[3], (long long)index);
    return GQAC_OK;
}

/* token, new [B,H,S,D], past_len [n], new_len [n] -> token, rows [n,H,T,D], T = max(past + new).
 * Sequence b gets its new rows (kv_batch) at past_len[b]; then its past + new rows are gathered.
 * Rows of the result at or beyond past + new keep what the output memory holds: nobody reads them.
 */
gqac_status target_kv_append(op_call *call) {
    const gqac_tensor *rows = call->in[1];
    const kv_batch *kv = call->kv;
    const int64_t slot = ir_attr_int(call->node, "slot");
    if (!kv || rows->rank != 4)
        GQAC_FAIL(call->diag, GQAC_INTERNAL, "kv_append outside of a step");
    GQAC_TRY(target_kv_check_rows(call, rows, slot));
    const int64_t heads = rows->dims[1], new_rows = rows->dims[2], width = rows->dims[3];
    const int64_t total = target_kv_total_rows(kv);
    GQAC_TRY(op_output(call, 0, GQAC_TOKEN, 0, NULL));
    GQAC_TRY(op_output(call, 1, rows->dtype, 4, (int64_t[]){kv->n, heads, total, width}));
    const size_t row_bytes = (size_t)width * (size_t)gqac_dtype_bits(rows->dtype) / 8;
    const size_t in_bytes = (size_t)(heads * new_rows) * row_bytes;
    const size_t out_bytes = (size_t)(heads * total) * row_bytes;
    for (int b = 0; b < kv->n; b++) {
        kv_sequence *sequence = kv->sequences[b];
        const char *from = (const char *)rows->data + (size_t)kv_batch_row(kv, b) * in_bytes +
                           (size_t)kv->begin[b] * row_bytes;
        char *to = (char *)call->out[1].data + (size_t)b * out_bytes;
        kv_write_rows(sequence, (int)slot, kv->past[b], kv->count[b], from, new_rows);
        kv_read_rows(sequence, (int)slot, 0, kv->past[b] + kv->count[b], to, total);
    }
    return GQAC_OK;
}
