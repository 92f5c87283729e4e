/* Shared by ops that read or write elements of data at indices; those that write have an attribute
 * `reduction`. */
#ifndef GQAC_OPS_SCATTER_H
#define GQAC_OPS_SCATTER_H

#include "ops/shared.h"

gqac_status op_scatter_verify(const ir_node *node, gqac_diag *diag);
unsigned op_scatter_types(const ir_node *node); /* of data, for that reduction */
/* Checks dtypes; out[0] becomes a copy of data. */
gqac_status op_scatter_start(op_call *call);
/* Writes elements [from, from + n) of updates to elements [to, to + n) of out[0], or combines them
 * with these. */
void op_scatter_put(const op_call *call, int64_t to, const gqac_tensor *updates, int64_t from,
                    int64_t n);

/* GatherElements and ScatterElements: the offset in data that an element of indices selects, in
 * row-major order of indices. `base` is the offset without the axis; the index times the stride of
 * the axis is added to it. */
typedef struct op_elements_cursor {
    const gqac_tensor *indices;
    int axis;
    int64_t strides[GQAC_MAX_RANK], at[GQAC_MAX_RANK], base;
} op_elements_cursor;
op_elements_cursor op_elements_begin(const op_call *call, int axis);
void op_elements_next(op_elements_cursor *p);
bool op_elements_mixes(const ir_node *node); /* `mixes` of both rows */

/* GatherND and ScatterND: true if the tuples of input 1 select rows, on the axes after the first
 * `batch`. */
bool op_tuples_mix(const ir_node *node, int64_t batch);

#endif
