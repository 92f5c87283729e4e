/* kv_tail: rows [B,1,T,C], past_len [B] -> state [B,C,length], the `length` rows before position
 * past_len[b] as columns, zeros where there are none. It is the state of a causal convolution whose
 * inputs are kept as the rows of a cache. */
#ifndef GQAC_OPS_KV_TAIL_H
#define GQAC_OPS_KV_TAIL_H

#include "ops/shared.h"

/* Checks the operands and makes the output; gives past_len. */
gqac_status kv_tail_open(op_call *call, const int32_t **past);
/* Puts row `row` (C elements of `width` bytes) of batch row b at place `at` of the output. */
void kv_tail_put(op_call *call, int64_t b, int64_t at, const void *row, size_t width);

#endif
