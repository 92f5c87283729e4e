/* What the ops of attention share. Symbols: B batch, S new tokens, P rows of past, T rows of keys,
 * Hq query heads, Hkv key/value heads, G = Hq/Hkv, D head size, p_b = past_len[b],
 * n_b = new_len[b]. */
#ifndef GQAC_OPS_ATTENTION_H
#define GQAC_OPS_ATTENTION_H

#include "ops/shared.h"
#include "ops/visible.h"

/* op_lengths of an input: past_len or new_len. */
gqac_status attention_lengths(op_call *call, int input, int64_t batch, const int32_t **lengths);
/* op_rows_fit with past_len (input past_input) and new_len (the next input). */
gqac_status attention_rows_open(op_call *call, int past_input, int64_t batch, int64_t width,
                                attention_rows *rows);
/* True if rows are packed: new_len, an operand of the node, then has the length
 * ATTENTION_SEQUENCES, a symbol. */
#define ATTENTION_SEQUENCES "gqac.sequences"
bool attention_is_packed(const ir_value *new_len);
/* For expansions with packed rows: unpack returns x, whose rows lie on `axis`, padded to one batch
 * row for each sequence; pack returns y [n,S,..] packed again, with as many rows as `like`
 * [1,H,N,D]. If rows are not packed, both return their operand. */
ir_value *attention_unpack(ir_builder *b, ir_value *x, ir_value *new_len, int64_t axis);
ir_value *attention_pack(ir_builder *b, ir_value *y, ir_value *new_len, ir_value *like);

/* op_visible with past_len (input past_input), new_len (the next input) and the node's attributes
 * causal and window. */
gqac_status attention_visible(op_call *call, int past_input, int64_t batch, int64_t rows,
                              int32_t *lo, int32_t *hi);
/* op_ranges with lo (input lo_input) and hi (the next input). */
gqac_status attention_ranges(op_call *call, int lo_input, int64_t batch, int64_t rows, int64_t keys,
                             const int32_t **lo, const int32_t **hi);
/* Fails: a mask or bias (`what`) does not broadcast to scores [B,Hq,S,T]. */
gqac_status attention_misfit(const op_call *call, const char *what, const gqac_tensor *mask,
                             const int64_t *scores);
/* Fails: the shapes of two tensors of rank 4 do not fit each other. */
gqac_status attention_mismatch(const op_call *call, const char *what, const gqac_tensor *a,
                               const char *with, const gqac_tensor *b);
/* Fails unless input `input` is a float tensor of that rank. */
gqac_status attention_float(op_call *call, int input, int rank);
/* INVALID_MODEL: the dtype of an input is known and differs. */
gqac_status attention_want_dtype(const ir_node *node, int input, gqac_dtype dtype, gqac_diag *diag);
/* INVALID_MODEL: the rank of an input is known and differs. */
gqac_status attention_want_rank(const ir_node *node, int input, int rank, gqac_diag *diag);
/* INVALID_MODEL: two dims are constant and differ. */
gqac_status attention_same_dim(const ir_node *node, const ir_dim *a, const ir_dim *b,
                               const char *what, gqac_diag *diag);
/* Number of rows of a present tensor: max(total, P), where total is the element of input `total`
 * and P the length of axis 2 of input `past` (0 if absent); NULL: not known. */
const ir_dim *attention_capacity(const ir_node *node, int total, int past);

/* ---- attention, attend ----------------------------------------------------- */

#define ATTENTION_SCORE_ATTRS                                                                      \
    {.name = "scale", .kind = IR_ATTR_FLOAT, .doc = "factor of the scores; absent: 1/sqrt(D)"},    \
        OP_ATTR_FLOAT("softcap", 0, "s becomes softcap * tanh(s / softcap); 0: off")
#define ATTENTION_BF16_ATTR                                                                        \
    OP_ATTR_INT("bf16", 0, "1: a kernel may take bf16 factors for q k^T and p v")
/* Types of y [B,S,Hq*Dv] and qk [B,Hq,S,T], from inputs q [B,Hq,S,D], k [B,Hkv,T,D] and
 * v [B,Hkv,T,Dv]. */
gqac_status attention_infer(ir_node *node, gqac_diag *diag);
/* make_bf16 of attention and attend: sets the attribute bf16. */
void attention_make_bf16(ir_node *node);

/* The attributes that determine which keys a query sees, their check, and `mixes` (false if
 * causal). */
#define ATTENTION_VISIBLE_ATTRS                                                                    \
    OP_ATTR_INT("causal", 1, "0: later keys are visible"),                                         \
        OP_ATTR_INT("window", -1, "keys a query sees, itself included; -1: all")
gqac_status attention_visible_verify(const ir_node *node, gqac_diag *diag);
bool attention_visible_mixes(const ir_node *node);

/* ---- building -------------------------------------------------------------- */

/* Concatenates past [B,H,P,D] and the new rows; past NULL: returns the new rows. */
ir_value *attention_with_past(ir_builder *b, ir_value *past, ir_value *rows);
/* x [B,S,N*D] as [B,N,S,D], by Reshape and Transpose. UNSUPPORTED: D is not constant. */
ir_value *attention_heads(ir_builder *b, const ir_node *node, ir_value *x, int64_t heads,
                          const ir_dim *size);
/* y [B,N,S,D] as [B,S,N*D]. */
ir_value *attention_flatten(ir_builder *b, ir_value *y);
/* The attribute scale of a node, or 1/sqrt(size) if it is 0. UNSUPPORTED: size is not known. */
float attention_scale(ir_builder *b, const ir_node *node, const ir_dim *size);
/* The same for the ops that compute scores; NaN: the size is known only in a call. Then they have
 * no attribute scale. */
float attention_scores_scale(const ir_node *node, const ir_dim *size);
/* The name of that attribute for a node with this scale; NULL: the node has no such attribute. */
const char *attention_scale_name(float scale);

/* ---- window-sized caches: sliding_window_cache = 1 ------------------------ */

/* The number e of tokens of a sequence that a cache of C rows holds for a window of W keys: the
 * last e tokens, in rows 0 .. e-1. That is all tokens while they fit; then `length` minus a
 * multiple of C - W + 1. */
int64_t attention_resident(int64_t capacity, int64_t window, int64_t length);
/* The position from which attention over such a cache counts: the last multiple of the key split
 * that is not after the first token in the cache, so that the cache does not change the
 * arithmetic. */
int64_t attention_window_start(int64_t capacity, int64_t window, int64_t past);
/* Check the attribute window; at run time also that it fits the capacity. */
gqac_status attention_window_verify(const ir_node *node, gqac_diag *diag);
gqac_status attention_window_fits(op_call *call, int64_t capacity);
/* Number of rows that attention reads: max over b of past + new - start. */
int64_t attention_window_rows(const ir_node *node, int64_t capacity, int64_t batch,
                              const int32_t *past, const int32_t *fresh);

/* ---- codes of a quantised cache (kv_quantise, kv_dequantise) ------------- */

/* Checks the attributes bits and per_channel. */
gqac_status attention_code_verify(const ir_node *node, gqac_diag *diag);
/* Number of elements that hold a row of `size` codes; NULL: not known. */
const ir_dim *attention_code_width(ir_dims *dims, const ir_dim *size, int bits);
/* f32 scales, all finite: one, or heads * size. */
gqac_status attention_scales(op_call *call, const gqac_tensor *tensor, bool per_channel,
                             int64_t heads, int64_t size, const float **scales);

#endif
