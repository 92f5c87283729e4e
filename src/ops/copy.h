/* Moving elements of any type. */
#ifndef GQAC_OPS_COPY_H
#define GQAC_OPS_COPY_H

#include "ops/shared.h"

/* Copies a box of elements: out[first_out + sum i_k*stride_out[k]] = in[first_in + ...] for all
 * i_k < dims[k]. Strides count elements and may be 0 (in) or negative. The box must lie inside. */
enum { OP_BOX_RANK = 2 * GQAC_MAX_RANK };
typedef struct op_box {
    int rank;
    int64_t dims[OP_BOX_RANK];
    const gqac_tensor *in;
    gqac_tensor *out;
    int64_t first_in, first_out;
    int64_t stride_in[OP_BOX_RANK], stride_out[OP_BOX_RANK];
} op_box;
void op_box_copy(op_call *call, const op_box *box);
/* op_output for outputs written by op_box_copy or op_put_i64 (i4 and u4 start as zeros). */
gqac_status op_copy_output(op_call *call, int index, gqac_dtype dtype, int rank,
                           const int64_t *dims);
/* out[0] = input 0 with another shape of as many elements. */
gqac_status op_copy_as(op_call *call, int rank, const int64_t *dims);

#endif
