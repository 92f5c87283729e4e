/* What rewrites of attention share: the places of caches among the operands of an op, what a value
 * is computed from, and caches of cross attention. */
#ifndef GQAC_PASSES_INSERT_KV_H
#define GQAC_PASSES_INSERT_KV_H

#include "passes/raise.h"

enum {
    INSERT_MOST_OPERANDS = 32,
    INSERT_DATA = 1, /* ir_node.mark: it leads to results otherwise than by masks and lengths */
};

/* Operands and outputs that hold the cache of an attention op: keys and values, or both in one
 * tensor (n = 1). */
typedef struct insert_places {
    int n, past[2], present[2];
} insert_places;
bool insert_kv_takes_past(const ir_node *node, insert_places *places);
/* Is the operand of such a node a mask or a length, not data? */
bool insert_kv_is_length(const ir_node *node, int operand);

/* Which inputs of the main graph a value is computed from: n_inputs entries of `inputs` are set.
 * Uses ir_node.mark. */
void insert_kv_origins(ir_graph *main, ir_value *value, bool *inputs);

/* Positions that the graph counts by itself for calls of `rows` tokens, on the way to results
 * (nodes that have the mark INSERT_DATA), become the input position_ids [batch,rows], which is
 * added when there are any (insert_positions.c). */
gqac_status insert_positions(pass_context *context, const ir_dim *batch, const ir_dim *rows);

/* The number of tokens in a call, and of the batch, is asked of the ids, not of the shape of these
 * graph inputs, where data depend on it: nodes that have the mark INSERT_DATA (insert_lengths.c).*/
gqac_status insert_lengths(ir_graph *graph, ir_value *ids, const bool *masks, gqac_diag *diag);
/* UNSUPPORTED, with the node, when data are computed from a graph input that is a mask. */
gqac_status insert_kv_want_mask(const ir_graph *graph, const ir_value *mask, gqac_diag *diag);

/* Windows of Attention in the main graph become masks, for whom their attribute is too new
 * (insert_window.c). */
gqac_status insert_windows(ir_graph *graph, gqac_diag *diag);

/* Linear biases that the mask of an Attention says, with what it says besides. */
typedef struct insert_slopes {
    raise_mask seen;
    int64_t heads;       /* 0: it has none */
    const ir_value *old; /* the mask that said so; no longer there when it is put back */
    ir_value *made;
} insert_slopes;
/* Takes such a mask away; causality and windows become attributes. steps: as those of `raise`. */
gqac_status insert_slopes_take(pass_context *context, int *steps, ir_node *node,
                               insert_slopes *slopes);
/* Gives it one for the rows of its past and its own. last: those that were put before, {0} first.
 */
gqac_status insert_slopes_put(pass_context *context, ir_node *node, const insert_slopes *slopes,
                              insert_slopes *last);

/* UNSUPPORTED unless the rows of keys and values that an attention op was taken apart into have a
 * known shape [B,H,S,D]. */
gqac_status insert_kv_want_rows(const ir_node *node, const op_parts *parts, gqac_diag *diag);

/* Cross attention with its caches of keys [0] and values [1]. */
typedef struct cross_layer {
    ir_node *node;            /* as it was; gone afterwards */
    ir_value *in[2];          /* graph inputs; their types are set here */
    const char *out_names[2]; /* of the values that are to be results */
    ir_value *out[2];         /* those values, made here */
    ir_node *attention;       /* what takes the place of the node */
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
