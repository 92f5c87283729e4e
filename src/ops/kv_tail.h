/* kv_tail: rows [B,1,T,C], past_len [B] -> state [B,C,length], the `length` rows before position
 * past_len[b] as columns, zeros before the first row. This is the state of a causal convolution
 * whose inputs are kept as rows of a cache. */
#ifndef GQAC_OPS_KV_TAIL_H
#define GQAC_OPS_KV_TAIL_H

#include "ops/lengths.h"

/* Checks `rows`, which may have no data, and sets *past to past_len. The output is [B,C,length]. */
gqac_status kv_tail_fit(const op_work *work, const gqac_tensor *rows, const gqac_tensor *past_len,
                        const int32_t **past);
gqac_tensor kv_tail_shape(const gqac_tensor *rows, int64_t length);
/* Clears y. */
void kv_tail_clear(gqac_tensor *y);
/* Writes a row (C elements of `width` bytes) of batch row b to column `at` of y. */
void kv_tail_put(gqac_tensor *y, int64_t b, int64_t at, const void *row, size_t width);
/* Writes the rows, which have data, to y, which has been cleared. */
void kv_tail_copy(gqac_tensor *y, const gqac_tensor *rows, const int32_t *past);

#endif
