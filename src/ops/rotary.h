/* What the ops of rotary embeddings share. */
#ifndef GQAC_OPS_ROTARY_H
#define GQAC_OPS_ROTARY_H

#include "ops/attention.h"
#include "ops/rotation.h"

/* Inputs of the op rotary. */
enum {
    ROTARY_X,
    ROTARY_COS,
    ROTARY_SIN,
    ROTARY_PAST_LEN,
    ROTARY_NEW_LEN,
    ROTARY_POSITION_IDS,
};

/* Of all rotary embeddings of files: checks of interleaved, num_heads and rotary_embedding_dim, and
 * of input 0, [B,S,H*D] or [B,H,S,D] of floats. */
gqac_status rotary_verify(const ir_node *node, gqac_diag *diag);
gqac_status rotary_check_input(const ir_node *node, gqac_diag *diag);

#define MS_ROTARY_ATTRS                                                                            \
    OP_ATTR_INT("interleaved", 0, "1: pairs are neighbours, 0: half a head apart"),                \
        OP_ATTR_INT("num_heads", 0, "heads of a 3-D input; 0: from the tables"),                   \
        OP_ATTR_INT("rotary_embedding_dim", 0,                                                     \
                    "channels that are rotated; 0: all; needs num_heads")
/* Attributes of com.microsoft's rotary embeddings that stand in all of them; ranks and types of
 * their input, cos_cache and sin_cache (inputs 0, 2 and 3). */
gqac_status ms_rotary_verify(const ir_node *node, gqac_diag *diag);
gqac_status ms_rotary_check_types(const ir_node *node, gqac_diag *diag);

/* rope_dynamic_offset and apply_rope_single_row: rows x [R,H*D]. */
extern const ir_attr_spec rope_attrs[]; /* head_size, interleaved */
gqac_status rope_verify(const ir_node *node, gqac_diag *diag);
/* x is a matrix of whole heads. */
gqac_status rope_check_rows(const ir_node *node, gqac_diag *diag);

#endif
