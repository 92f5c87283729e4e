/* Shared by rewrites of attention: which operands of an op are its cache, what a value is computed
 * from, and caches of cross attention. */
#ifndef GQAC_PASSES_INSERT_KV_H
#define GQAC_PASSES_INSERT_KV_H

#include "passes/raise.h"

enum {
    INSERT_MOST_OPERANDS = 32,
    INSERT_DATA = 1, /* ir_node.mark: results depend on it as data, not only by masks and lengths */
};

/* The operands and outputs of an attention op that are its cache: keys and values, or both in one
 * tensor (n = 1). */
typedef struct insert_operands {
    int n, past[2], present[2];
} insert_operands;
bool insert_kv_takes_past(const ir_node *node, insert_operands *cache);
/* True if an operand of an attention node is a mask or a length, not data. */
bool insert_kv_is_length(const ir_node *node, int operand);

/* The number of rows of queries or keys, [B,S,H*D] or [B,H,S,D]; NULL: it is not known, or the
 * value has another form or is NULL. */
const ir_dim *insert_kv_rows(const ir_value *value);

/* Finds the inputs of the main graph from which a value is computed: sets the n_inputs entries of
 * `inputs`. Uses ir_node.mark. */
void insert_kv_origins(ir_graph *main, ir_value *value, bool *inputs);

/* Replaces positions that the graph counts by itself for calls of `rows` tokens, in nodes with the
 * mark INSERT_DATA, by the input position_ids [batch,rows], which is added if there are any
 * (insert_positions.c). */
gqac_status insert_positions(pass_context *context, const ir_dim *batch, const ir_dim *rows);

/* Lets nodes with the mark INSERT_DATA read the number of tokens in a call, and the batch size,
 * from the shape of `ids` and not from the shapes of the graph inputs in `masks`
 * (insert_lengths.c). */
gqac_status insert_lengths(ir_graph *graph, ir_value *ids, const bool *masks, gqac_diag *diag);
/* UNSUPPORTED: data are computed from a graph input that is a mask; *diag names the node. */
gqac_status insert_kv_want_mask(const ir_graph *graph, const ir_value *mask, gqac_diag *diag);

/* Replaces the windows of Attention nodes in the main graph by masks, because other run times do
 * not know the attribute yet (insert_window.c). */
gqac_status insert_windows(ir_graph *graph, gqac_diag *diag);

/* Sets the mask of an Attention without nonpad_kv_seqlen (insert_window.c). */
gqac_status insert_mask(ir_node *attention, ir_value *mask, gqac_diag *diag);

/* Linear biases that the mask of an Attention contains, and what else it means. */
typedef struct insert_slopes {
    raise_mask seen;
    int64_t heads;       /* 0: it has none */
    const ir_value *old; /* the mask that contained them; removed by the time they are put back */
    ir_value *made;
} insert_slopes;
/* Removes such a mask and stores its biases; causality and windows become attributes. steps: see
 * raise.steps. */
gqac_status insert_slopes_take(pass_context *context, int *steps, ir_node *node,
                               insert_slopes *slopes);
/* Adds a mask with these biases, for past and new rows. last: the biases of the node before; {0}
 * for the first.
 */
gqac_status insert_slopes_put(pass_context *context, ir_node *node, const insert_slopes *slopes,
                              insert_slopes *last);

/* UNSUPPORTED: the keys and values into which an attention op was taken apart have no known shape
 * [B,H,S,D]. */
gqac_status insert_kv_want_rows(const ir_node *node, const op_parts *parts, gqac_diag *diag);

/* A node of cross attention with its caches of keys [0] and values [1]. */
typedef struct cross_layer {
    ir_node *node;            /* the original node, which is removed */
    ir_value *in[2];          /* graph inputs; their types are set here */
    const char *out_names[2]; /* names of the values that will be results */
    ir_value *out[2];         /* those values, set here */
    ir_node *attention;       /* the node that replaces it */
    ir_value *rows[2];        /* scratch: what is computed from the encoder's states */
} cross_layer;
typedef struct cross_caches {
    pass_context *context;
    ir_graph *graph;
    int n;
    cross_layer *layers;
    ir_node *choice; /* the If that is made */
} cross_caches;
gqac_status cross_cache_build(cross_caches *caches);

#endif
