/* Checks of operands, for evals and for kernels of targets. */
#ifndef GQAC_OPS_LENGTHS_H
#define GQAC_OPS_LENGTHS_H

#include "ops/work.h"

/* Reads an i32 tensor [batch] of lengths >= 0 (past_len, new_len); `name` is that of the operand,
 * for messages. INVALID_INPUT: another type or shape; OUT_OF_RANGE: a negative length. */
gqac_status op_lengths(const op_work *work, const gqac_tensor *tensor, const char *name,
                       int64_t batch, const int32_t **lengths);
/* INVALID_INPUT: the tensor is not a float tensor of that rank. */
gqac_status op_floats(const op_work *work, const gqac_tensor *tensor, const char *name, int rank);

#endif
