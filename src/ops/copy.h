/* Moving elements of any type. */
#ifndef GQAC_OPS_COPY_H
#define GQAC_OPS_COPY_H

#include "ops/shared.h"

/* Copies a box. */
void op_box_copy(op_call *call, const op_box *box);
/* The same for ops with IR_OP_MOVES, in the memory where the elements are. */
gqac_status op_move(op_call *call, const op_box *box);
/* op_output for outputs written by op_box_copy or op_put_i64 (i4 and u4 start as zeros). */
gqac_status op_copy_output(op_call *call, int index, gqac_dtype dtype, int rank,
                           const int64_t *dims);
/* out[0] = input 0 with another shape that has the same number of elements. */
gqac_status op_copy_as(op_call *call, int rank, const int64_t *dims);

#endif
