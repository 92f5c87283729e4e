/* The rows of each sequence and the keys that they attend to, on tensors, for evals and for kernels
 * of targets. The symbols are those of ops/attention.h. */
#ifndef GQAC_OPS_VISIBLE_H
#define GQAC_OPS_VISIBLE_H

#include "ops/lengths.h"

/* The new rows of n sequences in a tensor [B,..,S,..]: row b of the batch holds those of sequence b
 * and padding after its new_len[b]; or they are packed in one row of the batch, B = 1 and S the sum
 * of new_len, as in a step of sequences. */
typedef struct attention_rows {
    int64_t n;
    bool packed;
    int64_t width; /* S */
    const int32_t *past, *fresh;
} attention_rows;

/* Reads past_len and new_len, both [n]. INVALID_INPUT: they fit neither form; OUT_OF_RANGE: a
 * length is negative, there are more new tokens than rows, or a position exceeds i32. */
gqac_status op_rows_fit(const op_work *work, const gqac_tensor *past_len,
                        const gqac_tensor *new_len, int64_t batch, int64_t width,
                        attention_rows *rows);
/* Number of rows of sequence b, padding included. */
static inline int64_t attention_rows_of(const attention_rows *rows, int64_t b) {
    return rows->packed ? rows->fresh[b] : rows->width;
}
/* The keys lo <= j < hi that query s of each sequence attends to, i32 [B,S]:
 *   hi = p_b + s + 1 when causal, else p_b + n_b
 *   lo = max(0, p_b + s + 1 - window) with a window, else 0
 * Rows s >= n_b have no visible keys: lo = hi = 0. */
void op_visible(const attention_rows *rows, bool causal, int64_t window, int32_t *lo, int32_t *hi);
/* Checks and reads lo, hi of every row: i32 [B,S] with 0 <= lo <= hi <= keys. */
gqac_status op_ranges(const op_work *work, const gqac_tensor *lo_tensor,
                      const gqac_tensor *hi_tensor, int64_t batch, int64_t rows, int64_t keys,
                      const int32_t **lo, const int32_t **hi);
/* Checks that queries [B,Hq,S,D], keys [n,Hkv,T,D] and values [n,Hkv,T,Dv] fit: Hq is a multiple of
 * Hkv, and D and Dv are 1 to `most`. */
gqac_status op_heads_fit(const op_work *work, int64_t n, const gqac_tensor *q, const gqac_tensor *k,
                         const gqac_tensor *v, int64_t most);
/* Fails: a mask or bias (`what`) does not broadcast to scores [B,Hq,S,T]. */
gqac_status op_misfit(const op_work *work, const char *what, const gqac_tensor *mask,
                      const int64_t *scores);
/* f32 scales of a quantised cache, all finite: one, or heads * size. */
gqac_status op_code_scales(const op_work *work, const gqac_tensor *tensor, bool per_channel,
                           int64_t heads, int64_t size, const float **scales);

#endif
