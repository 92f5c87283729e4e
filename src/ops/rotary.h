/* Shared by the ops of rotary embeddings. */
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

/* For RotaryEmbedding of every domain: checks the attributes interleaved, num_heads and
 * rotary_embedding_dim. */
gqac_status rotary_verify(const ir_node *node, gqac_diag *diag);
/* Checks input 0: floats [B,S,H*D] or [B,H,S,D]. */
gqac_status rotary_check_input(const ir_node *node, gqac_diag *diag);

#define MS_ROTARY_ATTRS                                                                            \
    OP_ATTR_INT("interleaved", 0, "1: pairs are neighbours, 0: half a head apart"),                \
        OP_ATTR_INT("num_heads", 0, "heads of a 3-D input; 0: from the tables"),                   \
        OP_ATTR_INT("rotary_embedding_dim", 0,                                                     \
                    "channels that are rotated; 0: all; needs num_heads")
/* For the rotary embeddings of com.microsoft: checks the attributes. */
gqac_status ms_rotary_verify(const ir_node *node, gqac_diag *diag);
/* Checks ranks and types of input, cos_cache and sin_cache (inputs 0, 2 and 3). */
gqac_status ms_rotary_check_types(const ir_node *node, gqac_diag *diag);

/* rope_dynamic_offset and apply_rope_single_row: rows x [R,H*D]. */
extern const ir_attr_spec rope_attrs[]; /* head_size, interleaved */
gqac_status rope_verify(const ir_node *node, gqac_diag *diag);
/* Checks that x is a matrix, its rows a multiple of head_size. */
gqac_status rope_check_rows(const ir_node *node, gqac_diag *diag);

#endif
