/* What the ops of attention share. Symbols: B batch, S new tokens, P rows of past, T rows of keys,
 * Hq query heads, Hkv key/value heads, G = Hq/Hkv, D head size, p_b = past_len[b],
 * n_b = new_len[b]. */
#ifndef GQAC_OPS_ATTENTION_H
#define GQAC_OPS_ATTENTION_H

#include "ops/shared.h"

/* An i32 tensor [batch] of lengths >= 0 (past_len, new_len); INVALID_INPUT, OUT_OF_RANGE. */
gqac_status attention_lengths(op_call *call, int input, int64_t batch, const int32_t **lengths);
/* lo, hi of every row: i32 [B,S] with 0 <= lo <= hi <= keys. */
gqac_status attention_ranges(op_call *call, int lo_input, int64_t batch, int64_t rows, int64_t keys,
                             const int32_t **lo, const int32_t **hi);
/* Fails unless input `input` is a float tensor of that rank. */
gqac_status attention_float(op_call *call, int input, int rank);
/* INVALID_MODEL when the dtype of an input is known and another one. */
gqac_status attention_want_dtype(const ir_node *node, int input, gqac_dtype dtype, gqac_diag *diag);
/* INVALID_MODEL when the rank of an input is known and another one. */
gqac_status attention_want_rank(const ir_node *node, int input, int rank, gqac_diag *diag);
/* INVALID_MODEL when two dims are both constant and differ. */
gqac_status attention_same_dim(const ir_node *node, const ir_dim *a, const ir_dim *b,
                               const char *what, gqac_diag *diag);
/* Rows of a present tensor: max(total, P), the elements of input `total` and axis 2 of input
 * `past`; NULL when not known. Without a past P is 0. */
const ir_dim *attention_capacity(const ir_node *node, int total, int past);

#endif
