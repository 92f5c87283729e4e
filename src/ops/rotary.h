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

/* Attributes of com.microsoft's rotary embeddings that stand in all of them; ranks and types of
 * their input, cos_cache and sin_cache (inputs 0, 2 and 3). */
gqac_status ms_rotary_verify(const ir_node *node, gqac_diag *diag);
gqac_status ms_rotary_check_types(const ir_node *node, gqac_diag *diag);

#endif
