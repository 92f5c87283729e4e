/* The parts of raise. Each finds one kind of pattern that a tracer wrote out in simple ops
 * (activations, norms, rotary embeddings, attention) and replaces it by the ONNX op that means the
 * same.
 *
 * A part receives a node that may be the last of its pattern, and returns the value that replaces
 * the output of that node, or NULL. Once it has recognised the node as a candidate (raise.what),
 * every failure names the node that prevents raising. */
#ifndef GQAC_PASSES_RAISE_H
#define GQAC_PASSES_RAISE_H

#include "passes/rewrite.h"

enum { RAISE_STEPS = 4 << 20, RAISE_ALSO = 4 };

/* The last mask whose meaning could not be proven. Layers share a mask, and trying again for each
 * layer would take long. */
typedef struct raise_unread {
    const ir_value *mask;   /* NULL: none yet */
    int past;               /* rank of the past; -2: there is none */
    const ir_dim *asked[5]; /* the lengths of queries, keys and the past that it was read for */
    bool hidden;
    const ir_node *stop; /* NULL: the node that asked */
    const char *why;
} raise_unread;

/* The nodes that mix rows (raise_rows.c). Nothing else in `raise` sets node marks. */
typedef struct raise_rows {
    const ir_node **found; /* NULL: not searched yet */
} raise_rows;

/* Where a model writes new rows into its buffers (raise_written.c). */
typedef struct raise_writes {
    const ir_dim *first;   /* position of the first new row; NULL: no buffer is being read */
    const ir_value *input; /* the graph input that has that position; NULL: not known yet */
    const ir_type *q;      /* of queries [B,H,S,D] over such a buffer; NULL: there is none */
} raise_writes;

typedef struct raise {
    pass_context *context;
    int *steps; /* number of mask elements that may still be read, from RAISE_STEPS on, in the whole
                   module */
    raise_unread *unread; /* two: by `unpadded` */
    raise_rows *rows_together;
    bool portable;       /* raise only to ops that other run times know: up to opset 24 */
    bool unpadded;       /* the attention mask is all ones */
    ir_builder b;        /* before the last node of the pattern */
    const char *what;    /* the op that the node is a candidate for; NULL: it is none */
    const ir_node *stop; /* the first node that prevented raising, and why */
    const char *why;
    const ir_node *carried; /* why a mask stays a tensor; NULL: none does */
    const char *carried_why;
    double mask_factor;           /* factor of scores and the mask together; 0: none */
    raise_writes *writes;         /* NULL: no buffers are looked for */
    const ir_dim *rows, *queries; /* lengths in the old result that are the same; may be NULL */
    struct {
        ir_value *old, *by;
        bool returned;  /* replace it only as a result of the graph */
    } also[RAISE_ALSO]; /* other results that are replaced */
    int n_also;
} raise;

/* ---- matching ------------------------------------------------------------ */

/* The node that makes a value in the same graph, when it is of that ONNX op. */
ir_node *raise_maker(const ir_value *value, const char *op);
/* Reads a float constant of one element into *x. */
bool raise_scalar(const ir_value *value, double *x);
bool raise_near(double x, double wanted); /* equal except for the last bits of an f32 */
/* The other operand of a Mul or Add with a scalar constant, which is stored in *x; NULL: there is
 * no such constant. */
ir_value *raise_beside_scalar(const ir_node *node, double *x);
/* The value before a few Mul and Div by scalar constants; *factor is multiplied by them. */
ir_value *raise_unscaled(ir_value *value, double *factor);
/* A constant dim; 0: not known. */
int64_t raise_dim(const ir_value *value, int axis);
bool raise_is_perm(const ir_node *transpose, int n, const int64_t *perm);
/* A node that depends on `from` and mixes the rows of a call; NULL: none does. */
const ir_node *raise_find_mixing(raise *r, const ir_node *from);
/* Records the node that prevents raising, unless one was recorded before; returns false. */
bool raise_stopped(raise *r, const ir_node *node, const char *why);

/* Codes to which numbers are rounded: by one scale and one zero point. */
typedef struct raise_codes {
    ir_value *scale, *zero; /* constants; scale NULL: nothing is rounded, zero NULL: it is 0 */
} raise_codes;
/* Returns x of DequantizeLinear(QuantizeLinear(x)), both f32 with the same *codes; the value itself
 * if it is something else. */
ir_value *raise_through_codes(ir_value *value, raise_codes *codes);

/* ---- building ------------------------------------------------------------ */

/* [B,H,S,D] <-> [B,S,H*D] by Transpose and Reshape, most of which `simplify` removes. */
ir_value *raise_pack(raise *r, ir_value *x);
ir_value *raise_unpack(raise *r, ir_value *x, int64_t heads, int64_t size);
/* Dim `axis` of x as [1], read from a graph input that has it, so that all layers read the same
 * value. */
ir_value *raise_ask_dim(raise *r, ir_value *x, int axis);
/* The node, which has one result and at most OP_LINE_INPUTS operands, with another operand in place
 * of `old`. */
ir_value *raise_again(ir_builder *b, const ir_node *node, const ir_value *old, ir_value *by);
/* If the pattern is raised, `old` is replaced by `by` as well. */
void raise_also(raise *r, ir_value *old, ir_value *by, bool returned);
/* Builds an Expand to these lengths, each [1]. */
ir_value *raise_expand(raise *r, ir_value *x, int n, ir_value *const *lengths);

/* ---- the parts ----------------------------------------------------------- */

ir_value *raise_activation(raise *r, ir_node *mul);
ir_value *raise_norm(raise *r, ir_node *mul);
ir_value *raise_norm_bias(raise *r, ir_node *add);
ir_value *raise_angles(raise *r, ir_node *transpose);
ir_value *raise_outer(raise *r, ir_node *product);
ir_value *raise_rotary(raise *r, ir_node *add);
ir_value *raise_interleaved(raise *r, ir_node *add);
ir_value *raise_bounded(raise *r, ir_node *where);
ir_value *raise_attention(raise *r, ir_node *matmul);
ir_value *raise_cached(raise *r, ir_node *attention);
ir_value *raise_masked(raise *r, ir_node *attention);
ir_value *raise_written(raise *r, ir_node *attention);
ir_value *raise_multi_head(raise *r, ir_node *attention);
ir_value *raise_causal(raise *r, ir_node *attention);
ir_value *raise_length(raise *r, ir_node *reshape);
/* Lets Transposes of `turned` by `perm` be `from`, which it was transposed from. */
void raise_turn_back(const ir_value *turned, int rank, const int64_t *perm, ir_value *from);
/* Appends new rows to pasts before these are transposed rather than after, and turns pasts
 * [B*H,P,D] and [B*H,D,P] into [B,H,P,D]. */
gqac_status raise_pasts(pass_context *context);
/* Makes products [B,S*H,D] of queries that share one key and one value products [B,H,S,D]. */
gqac_status raise_multi_query(pass_context *context);
/* Lets keys and values that are rounded to codes in each call be rounded before they are cached. */
gqac_status raise_rounded(pass_context *context);
/* Replaces latent caches, and caches in other forms than [B,H,P,D], by caches of the keys and
 * values that are computed from them. */
gqac_status raise_latent(pass_context *context);
/* To be called at the end: other readers of the positions of writes then read position_ids. */
gqac_status raise_positions(raise *r);
/* To be called at the end as well: positions that the graph computes become position_ids. */
gqac_status raise_counted(raise *r);
/* The input position_ids, which is added if there is none; NULL: it has another shape. */
ir_value *raise_position_ids(raise *r);
/* Replaces the node's output by `positions`, which `b` has built from position_ids between `prev`
 * and `node`. */
gqac_status raise_put_positions(raise *r, const ir_builder *b, ir_node *node, ir_node *prev,
                                ir_value *positions);
/* Position of the first new row in the buffer that is being read; NULL: there is none. */
static inline const ir_dim *raise_first_position(const raise *r) {
    return r->writes ? r->writes->first : NULL;
}
/* True for the graph input that has the position of the first new row, or of each (cache_position).
 * The first integer input that is tested is recorded as that input. */
bool raise_is_first_input(raise *r, const ir_value *value);

/* ---- masks --------------------------------------------------------------- */

/* The meaning of a mask for query q and key k of batch row b, proven for every call: k is visible
 * if k <= past + q (causal), k >= past + q - left (left >= 0), and padding[b,k] is not 0 (padding
 * not NULL). */
typedef struct raise_mask {
    bool causal;
    int64_t left; /* -1: no bound */
    ir_value *padding;
    /* slopes[h] * k is added for head h, as key_bias computes it; NULL: nothing is */
    const float *slopes;
    float factor;
    gqac_dtype rounded; /* NONE: not rounded, and the factor is 1 */
    bool whole_rounded;
} raise_mask;

/* Proves the meaning of a mask that is added to scores [B,H,S,keys] (f16, f32), or of a bool mask
 * that is true where a key is visible, or where it is hidden (`hidden`). `past` holds the first
 * keys; NULL: there is none. */
bool raise_read_mask(raise *r, const ir_value *mask, bool hidden, const ir_type *q,
                     const ir_value *past, const ir_dim *keys, raise_mask *out);
/* The same for the mask of an Attention (ONNX); *heads is 0 if their number is not known. */
bool raise_read_own(raise *r, ir_node *attention, raise_mask *seen, int64_t *heads);
/* The local_window_size with which GroupQueryAttention shows a query its own key and `left` before
 * it; 0: no value does. */
int64_t raise_window_size(const raise *r, int64_t left);
/* The slopes of a bias as a constant [heads]. */
ir_value *raise_slopes(raise *r, const raise_mask *seen, int64_t heads);
/* The bias in a sequence, with a column for each row of the past; `stateful` gives it one for each
 * row of the cache. */
ir_value *raise_key_bias(raise *r, const raise_mask *seen, int64_t heads, ir_value *past);
/* The attention mask [B,T] as bool [B,1,S,T]: ONNX Runtime needs a row for each query. */
ir_value *raise_padding(raise *r, ir_value *padding, ir_value *rows);
/* True if in every call a mask has one row, or one row for each query. (A mask that is added could
 * broadcast one query to many rows; the mask of Attention cannot.) *narrow: it may have one column,
 * which applies to all keys when it is added, but only to the first key in Attention. A constant
 * number of columns above 1 is the number of keys, or the file's own addition would fail. */
bool raise_mask_fits(raise *r, const ir_type *mask, const ir_type *q, const ir_value *past,
                     const ir_dim *keys, bool *narrow);

/* True if the value is the position of each token in its call, 0, 1, 2, ..., as [rows], [1,rows] or
 * [batch,rows], possibly followed by axes of 1. cut: it is part of a table that is longer than any
 * call, so its type need not have the number of rows. */
bool raise_is_positions(raise *r, ir_value *value, const ir_dim *batch, const ir_dim *rows,
                        bool cut);

#endif
