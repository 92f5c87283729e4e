/* The operands of the op rotary on tensors, for its eval and for kernels of targets. */
#ifndef GQAC_OPS_ROTATION_H
#define GQAC_OPS_ROTATION_H

#include "ops/lengths.h"

typedef struct rotation {
    const gqac_tensor *cos, *sin, *ids; /* ids NULL: none */
    const int32_t *past, *fresh;        /* NULL: absent */
    int64_t batch, heads, rows, size;   /* of x */
    int64_t positions, half;            /* cos and sin are [positions, half] */
    bool interleaved;
} rotation;

/* All operands except x; NULL: absent. */
typedef struct rotary_operands {
    const gqac_tensor *cos, *sin, *past_len, *new_len, *position_ids;
    bool interleaved;
} rotary_operands;

/* Checks and reads the operands, for x [B,H,S,D] of floats with those dims. Afterwards every row
 * that is not padding has a position within the tables. */
gqac_status rotary_fit(const op_work *work, const rotary_operands *o, const int64_t dims[4],
                       rotation *r);

static inline int64_t rotary_position(const rotation *r, int64_t b, int64_t s) {
    if (!r->ids)
        return r->past[b] + s;
    return r->ids->rank == 1 ? op_get_i64(r->ids, 0) + s : op_get_i64(r->ids, b * r->rows + s);
}

/* True if the row is padding; its result is zeros. */
static inline bool rotary_is_pad(const rotation *r, int64_t b, int64_t s) {
    return r->fresh && s >= r->fresh[b];
}

#endif
