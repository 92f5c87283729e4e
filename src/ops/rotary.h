/* The operands of the op rotary, for its eval and for kernels of targets. */
#ifndef GQAC_OPS_ROTARY_H
#define GQAC_OPS_ROTARY_H

#include "ops/attention.h"

enum {
    ROTARY_X,
    ROTARY_COS,
    ROTARY_SIN,
    ROTARY_PAST_LEN,
    ROTARY_NEW_LEN,
    ROTARY_POSITION_IDS,
};

typedef struct rotation {
    const gqac_tensor *cos, *sin, *ids; /* ids NULL: none */
    const int32_t *past, *fresh;        /* NULL: absent */
    int64_t batch, heads, rows, size, positions, half;
    bool interleaved;
} rotation;

/* Checks and reads every operand but x, which is a float tensor [B,H,S,D] of those dims (and need
 * not be there: see op_value). Every row that is no pad has a position within the tables. */
gqac_status rotary_open(op_call *call, const int64_t dims[4], rotation *r);

/* Attributes of com.microsoft's rotary embeddings that stand in all of them; ranks and types of
 * their input, cos_cache and sin_cache (inputs 0, 2 and 3). */
gqac_status ms_rotary_verify(const ir_node *node, gqac_diag *diag);
gqac_status ms_rotary_check_types(const ir_node *node, gqac_diag *diag);

static inline int64_t rotary_position(const rotation *r, int64_t b, int64_t s) {
    if (!r->ids)
        return r->past[b] + s;
    return r->ids->rank == 1 ? op_get_i64(r->ids, 0) + s : op_get_i64(r->ids, b * r->rows + s);
}

/* Such a row is zeros. */
static inline bool rotary_is_pad(const rotation *r, int64_t b, int64_t s) {
    return r->fresh && s >= r->fresh[b];
}

#endif
