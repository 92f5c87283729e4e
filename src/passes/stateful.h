/* The parts of stateful: pairs become state (stateful.c), and lengths come from the run time
 * (stateful_lengths.c). For attention ops other than GroupQueryAttention there are caches and
 * ranges (stateful_family.c), heads of caches (stateful_flat.c), their Casts (stateful_cast.c),
 * masks (stateful_masks.c), convolutions (stateful_conv.c), recurrences (stateful_recurrent.c), and
 * shapes of pasts (stateful_shapes.c). */
#ifndef GQAC_PASSES_STATEFUL_H
#define GQAC_PASSES_STATEFUL_H

#include "passes/rewrite.h"

enum { STATEFUL_PAST = 1 }; /* ir_value.id of the past of a pair; other graph inputs have 0 */
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
    ir_value *total_len;          /* likewise; NULL: nothing reads it */
} stateful;

/* Removes the Casts of caches that a file has in a wider type (stateful_cast.c). */
void stateful_uncast(stateful *s);
/* UNSUPPORTED: the past is cast to another type, and stateful_uncast has left it. */
gqac_status stateful_check_casts(const stateful *s, const ir_value *past);
/* Turns buffers [B,T,H*D] into [B,H,T,D], the form that sequences keep. */
gqac_status stateful_unfold(stateful *s);
/* True if a node appends to `past`, as Concat or TensorScatter, and only attention reads the
 * result. */
bool stateful_is_cache(const ir_node *node, const ir_value *past);
/* True if the node writes to a buffer whose number of valid rows is an input of the model. */
bool stateful_is_static(const ir_node *node);
/* The new rows of the node of a pair. */
ir_value *stateful_fresh(const ir_node *cache);
/* True if `past` is the state of that causal convolution, and its present a graph result. */
bool stateful_is_conv(const ir_node *node, const ir_value *past);
/* The input of a convolution as rows [B,1,S,C] of a cache. */
gqac_status stateful_conv_rows(ir_builder *b, const ir_node *conv, ir_value **rows);
/* Lets the convolution read its state from the cached rows; its own past is removed. */
gqac_status stateful_conv_join(ir_builder *b, ir_node *conv, ir_value *rows, ir_value *past_len);
/* True if `past` is the state of that recurrence, and its present a graph result. */
bool stateful_is_recurrent(const ir_node *node, const ir_value *past);
/* Replaces the node by the same recurrence on the state that `token` stands for. */
gqac_status stateful_recurrent_join(ir_builder *b, ir_node *node, ir_value *token, ir_value **last);
/* Replaces every seqlens_to_past by the graph inputs past_len and new_len, and marks the nodes of
 * pairs. UNSUPPORTED: the operands of a seqlens_to_past, or lengths in stateful_family.c, depend on
 * more than length inputs and the attention mask. */
gqac_status stateful_lengths(stateful *s);
/* Called by stateful_lengths, which has marked (1) the nodes from which lengths are computed.
 * UNSUPPORTED: the lengths are not those of a sequence. */
gqac_status stateful_seqlens(const stateful *s);
/* To be called after stateful_lengths: lets key_range count from past_len and new_len. UNSUPPORTED:
 * a key_range is not over a pair.
 */
gqac_status stateful_ranges(stateful *s);
/* Sets *pads to true if a mask of attention only says where the attention mask is zero. */
gqac_status stateful_mask_pads(const stateful *s, ir_value *mask, bool *pads);
/* Removes masks that only repeat the attention mask. UNSUPPORTED: attention has another mask. */
gqac_status stateful_masks(stateful *s);
/* To be called after stateful_masks: lets nodes read the batch size from the token ids, and
 * replaces positions that are counted from the past by position_ids, which become i64. */
gqac_status stateful_shapes(stateful *s);
/* To be called last: lets readers of the length of the mask read total_len, and removes inputs
 * without uses. UNSUPPORTED: the mask has another reader, or the graph an input that a sequence
 * cannot fill. */
gqac_status stateful_inputs(stateful *s);

#endif
