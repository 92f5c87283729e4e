/* Ops with data, indices, updates, and an attribute `reduction`. */
#ifndef GQAC_OPS_SCATTER_H
#define GQAC_OPS_SCATTER_H

#include "ops/shared.h"

gqac_status op_scatter_verify(const ir_node *node, gqac_diag *diag);
unsigned op_scatter_types(const ir_node *node); /* of data, for that reduction */
/* Checks dtypes; out[0] becomes a copy of data. */
gqac_status op_scatter_start(op_call *call);
/* Element `at` of indices as a place on an axis. */
gqac_status op_scatter_index(op_call *call, int64_t at, int64_t length, int64_t *index);
/* Elements [to, to + n) of out[0] become, or are combined with, [from, from + n) of updates. */
void op_scatter_put(const op_call *call, int64_t to, const gqac_tensor *updates, int64_t from,
                    int64_t n);
/* `mixes` of ScatterElements and GatherElements. */
bool op_elements_mixes(const ir_node *node);

#endif
