/* Operands that are lengths or single numbers, for evals and for kernels of targets. */
#ifndef GQAC_OPS_LENGTHS_H
#define GQAC_OPS_LENGTHS_H

#include "ops/work.h"

/* An i32 tensor [batch] of lengths >= 0 (past_len, new_len); INVALID_INPUT, OUT_OF_RANGE. `name`
 * of the operand, for messages. */
gqac_status op_lengths(const op_work *work, const gqac_tensor *tensor, const char *name,
                       int64_t batch, const int32_t **lengths);
/* A float tensor of that rank; INVALID_INPUT. */
gqac_status op_floats(const op_work *work, const gqac_tensor *tensor, const char *name, int rank);

#endif
