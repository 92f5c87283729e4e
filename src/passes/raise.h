/* The parts of raise: activations, norms, rotary embeddings and attention that a tracer wrote out
 * in simple ops are found, and replaced by the ONNX op that means the same.
 *
 * Each part gets the last node of what may be its pattern, and returns the value that replaces the
 * output of that node, or NULL. Once it has recognised the node as a candidate (raise.what), every
 * failure names the node that stopped it. */
#ifndef GQAC_PASSES_RAISE_H
#define GQAC_PASSES_RAISE_H

#include "passes/rewrite.h"

enum { RAISE_STEPS = 4 << 20, RAISE_ALSO = 4 };

/* The last mask that could not be read: layers share one, and reading it again would take long. */
typedef struct raise_unread {
    const ir_value *mask;   /* NULL: none yet */
    int past;               /* rank of the past; -2: there is none */
    const ir_dim *asked[5]; /* the lengths of queries, keys and the past that it was read for */
    bool hidden;
    const ir_node *stop; /* NULL: the node that asked */
    const char *why;
} raise_unread;

/* The nodes that mix rows (raise_rows.c), by node marks, which nothing else in `raise` sets. */
typedef struct raise_rows {
    const ir_node **found; /* NULL: not searched yet */
} raise_rows;

/* Where a model writes new rows into its buffers (raise_written.c). */
typedef struct raise_writes {
    const ir_dim *first;   /* position of the first one; NULL: no buffer is looked at */
    const ir_value *input; /* the graph input that has it; NULL: not known yet */
    const ir_type *q;      /* of queries [B,H,S,D] over such a buffer; NULL: there is none */
} raise_writes;

typedef struct raise {
    pass_context *context;
    int *steps;           /* what is left of RAISE_STEPS elements of masks, in the whole module */
    raise_unread *unread; /* two: by `unpadded` */
    raise_rows *rows_together;
    bool portable;       /* to what other run times know: up to opset 24 */
    bool unpadded;       /* the attention mask is ones */
    ir_builder b;        /* before the last node of the pattern */
    const char *what;    /* the op it is a candidate for; NULL: the node is none */
    const ir_node *stop; /* the first node that stopped it, and why */
    const char *why;
    const ir_node *carried; /* why a mask stays a tensor; NULL: none does */
    const char *carried_why;
    double mask_factor;           /* of scores and masks together; 0: none */
    raise_writes *writes;         /* NULL: no buffers are looked for */
    const ir_dim *rows, *queries; /* of the old result, which are the same; may be NULL */
    struct {
        ir_value *old, *by;
        bool returned;  /* only where its graph returns it */
    } also[RAISE_ALSO]; /* other results that are replaced */
    int n_also;
} raise;

/* ---- matching ------------------------------------------------------------ */

/* The node that makes a value in the same graph, when it is of that ONNX op. */
ir_node *raise_maker(const ir_value *value, const char *op);
/* *x of a constant of one element that is a float. */
bool raise_scalar(const ir_value *value, double *x);
bool raise_near(double x, double wanted); /* equal except for the last bits of an f32 */
/* The operand of a Mul or Add beside the scalar constant *x; NULL when there is none. */
ir_value *raise_beside_scalar(const ir_node *node, double *x);
/* The value before a few Mul and Div by scalar constants; *factor is multiplied by them. */
ir_value *raise_unscaled(ir_value *value, double *factor);
/* A dim that is a constant; 0 when it is not known. */
int64_t raise_dim(const ir_value *value, int axis);
bool raise_is_perm(const ir_node *transpose, int n, const int64_t *perm);
/* A node that depends on `from` and mixes the rows of a call; NULL: none does. */
const ir_node *raise_find_mixing(raise *r, const ir_node *from);
/* Reports the node that stopped a candidate, unless one was reported before; returns false. */
bool raise_stopped(raise *r, const ir_node *node, const char *why);

/* ---- building ------------------------------------------------------------ */

/* [B,H,S,D] <-> [B,S,H*D] by Transpose and Reshape, most of which `simplify` removes. */
ir_value *raise_pack(raise *r, ir_value *x);
ir_value *raise_unpack(raise *r, ir_value *x, int64_t heads, int64_t size);
/* Dim `axis` of x as [1]: asked of a graph input that has it, so that all layers ask the same. */
ir_value *raise_ask_dim(raise *r, ir_value *x, int axis);
/* If the pattern is raised, `old` is replaced by `by`, too. */
void raise_also(raise *r, ir_value *old, ir_value *by, bool returned);
/* An Expand to these lengths, each [1]. */
ir_value *raise_expand(raise *r, ir_value *x, int n, ir_value *const *lengths);

/* ---- the parts ----------------------------------------------------------- */

ir_value *raise_activation(raise *r, ir_node *mul);
ir_value *raise_norm(raise *r, ir_node *mul);
ir_value *raise_norm_bias(raise *r, ir_node *add);
ir_value *raise_angles(raise *r, ir_node *transpose);
ir_value *raise_rotary(raise *r, ir_node *add);
ir_value *raise_interleaved(raise *r, ir_node *add);
ir_value *raise_attention(raise *r, ir_node *matmul);
ir_value *raise_cached(raise *r, ir_node *attention);
ir_value *raise_masked(raise *r, ir_node *attention);
ir_value *raise_written(raise *r, ir_node *attention);
/* Latent caches become caches of the keys and values that are made of them. */
gqac_status raise_latent(pass_context *context);
/* Afterwards: other readers of the positions of writes read position_ids. */
gqac_status raise_positions(raise *r);
/* Position of the first new row of the buffer that is looked at; NULL: none is. */
static inline const ir_dim *raise_first_position(const raise *r) {
    return r->writes ? r->writes->first : NULL;
}
/* Is it the graph input with the position of the first new row, or of each (cache_position)? The
 * first input of integers that is tested is recorded as that input. */
bool raise_is_first_input(raise *r, const ir_value *value);

/* ---- masks --------------------------------------------------------------- */

/* What a mask means for the query in row q and the key in row k of batch row b, proven for every
 * call: k is visible when k <= past + q (causal), k >= past + q - left (left >= 0), and
 * padding[b,k] is not 0 (padding not NULL). */
typedef struct raise_mask {
    bool causal;
    int64_t left; /* -1: no bound */
    ir_value *padding;
    const float *slopes; /* slopes[h] * step * k is added for head h; NULL: nothing is */
    int64_t step;
} raise_mask;

/* Proves it of a mask that is added to scores [B,H,S,keys] (f16, f32), or that is true where a key
 * is visible (bool), or hidden (`hidden`). `past` holds the first keys; NULL: there is none. */
bool raise_read_mask(raise *r, const ir_value *mask, bool hidden, const ir_type *q,
                     const ir_value *past, const ir_dim *keys, raise_mask *out);
/* The same for the mask of an Attention (ONNX); *heads is 0 when their number is not known. */
bool raise_read_own(raise *r, ir_node *attention, raise_mask *seen, int64_t *heads);
/* The slopes of a bias as a constant [heads]. */
ir_value *raise_slopes(raise *r, const raise_mask *seen, int64_t heads);
/* The attention mask [B,T] as bool [B,1,S,T]: ONNX Runtime needs a row for each query. */
ir_value *raise_padding(raise *r, ir_value *padding, ir_value *rows);
/* True if a mask has in every call one row, or one row for each query. A mask that is added could
 * broadcast one query to many rows; that of Attention cannot. *narrow: it may have one column,
 * which applies to all keys when it is added, but only to the first key in Attention. A constant
 * number of columns above 1 is the number of keys, or the file's own addition would fail. */
bool raise_mask_fits(raise *r, const ir_type *mask, const ir_type *q, const ir_value *past,
                     const ir_dim *keys, bool *narrow);

/* Is it the position of each token in its call, 0, 1, 2, ..., as [rows], [1,rows] or [batch,rows],
 * or as one of these followed by axes of 1? cut: it is a part of a table that is longer than any
 * call, so its type need not have the number of rows. */
bool raise_is_positions(raise *r, ir_value *value, const ir_dim *batch, const ir_dim *rows,
                        bool cut);

#endif
