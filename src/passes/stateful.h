/* The parts of stateful: pairs become state (stateful.c), lengths come from the run time
 * (stateful_lengths.c), and what differs for attention ops beside GroupQueryAttention: caches and
 * ranges (stateful_family.c), heads of caches (stateful_flat.c), masks (stateful_masks.c),
 * convolutions (stateful_conv.c), recurrences (stateful_recurrent.c), shapes of pasts
 * (stateful_shapes.c). */
#ifndef GQAC_PASSES_STATEFUL_H
#define GQAC_PASSES_STATEFUL_H

#include "passes/rewrite.h"

enum { STATEFUL_PAST = 1 }; /* ir_value.id of the past of a pair; 0 of other graph inputs */
enum { STATEFUL_PAIR = 2 }; /* ir_node.mark of the node that makes the present of a pair */

typedef struct stateful {
    pass_context *context;
    ir_graph *graph; /* the main graph */
    int n_pairs;
    struct stateful_pair {
        ir_value *past;
        ir_node *concat; /* appends to the cache, or the convolution or recurrence */
        enum { STATEFUL_ROWS, STATEFUL_CONV, STATEFUL_RECURRENT } kind;
        const char *present; /* name of the result */
    } * pairs;
    ir_value *past_len, *new_len; /* graph inputs of the run time */
    ir_value *total_len;          /* likewise; NULL when nothing asks for it */
} stateful;

/* One past of keys and values [2,B,N,P,D] (com.microsoft.Attention) becomes two, and its result. */
gqac_status stateful_unpack(stateful *s);
/* Buffers [B,T,H*D] become [B,H,T,D], as sequences keep them. */
gqac_status stateful_unfold(stateful *s);
/* Does a node append to `past`, as Concat or TensorScatter, for attention only? */
bool stateful_is_cache(const ir_node *node, const ir_value *past);
/* Does the node write a buffer, whose number of valid rows is an input of the model? */
bool stateful_is_static(const ir_node *node);
/* The new rows of the node of a pair. */
ir_value *stateful_fresh(const ir_node *cache);
/* Is `past` the state of that causal convolution, which returns it as a result? */
bool stateful_is_conv(const ir_node *node, const ir_value *past);
/* The input of a convolution as rows [B,1,S,C] of a cache. */
gqac_status stateful_conv_rows(ir_builder *b, const ir_node *conv, ir_value **rows);
/* The convolution takes its state from the cached rows; its own goes. */
gqac_status stateful_conv_join(ir_builder *b, ir_node *conv, ir_value *rows, ir_value *past_len);
/* Is `past` the state of that recurrence, which returns it as a result? */
bool stateful_is_recurrent(const ir_node *node, const ir_value *past);
/* Replaces the node by the same recurrence on the state that `token` stands for. */
gqac_status stateful_recurrent_join(ir_builder *b, ir_node *node, ir_value *token, ir_value **last);
/* Graph inputs past_len and new_len take the place of every seqlens_to_past. UNSUPPORTED when what
 * that reads, or the lengths of the family, depend on more than length inputs (the attention mask).
 * Marks the nodes of pairs. */
gqac_status stateful_lengths(stateful *s);
/* Within stateful_lengths, which has marked (1) what lengths are computed from: UNSUPPORTED when
 * they are not those of a sequence. */
gqac_status stateful_seqlens(const stateful *s);
/* Call after stateful_lengths: key_range counts from past_len and new_len; UNSUPPORTED names one
 * that is not over a pair.
 */
gqac_status stateful_ranges(stateful *s);
/* Does a mask of attention only say where the attention mask is zero? */
gqac_status stateful_mask_pads(const stateful *s, ir_value *mask, bool *pads);
/* Masks that only repeat the attention mask go; UNSUPPORTED names attention with another one. */
gqac_status stateful_masks(stateful *s);
/* Call after stateful_masks: the batch is read from the token ids, and positions counted from the
 * past are position_ids. */
gqac_status stateful_shapes(stateful *s);
/* Call last: readers of the length of the mask read total_len, and inputs without uses are removed.
 * UNSUPPORTED names another reader of the mask, or inputs that a sequence cannot feed. */
gqac_status stateful_inputs(stateful *s);

#endif
