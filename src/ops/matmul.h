/* The matmul of the numerics contract, shared by MatMul, Gemm and MatMulNBits, and the shapes of
 * MatMul and MatMulInteger. */
#ifndef GQAC_OPS_MATMUL_H
#define GQAC_OPS_MATMUL_H

#include "ops/matrices.h"
#include "ops/shared.h"

/* matmul_do and matmul_fit (of inputs 0 and 1), for an eval. */
gqac_status matmul_run(op_call *call, const matmul_job *job);
gqac_status matmul_shape_of(op_call *call, matmul_shape *s, int *rank, int64_t *dims);
gqac_status matmul_infer(ir_node *node, gqac_dtype dtype, gqac_diag *diag);
/* `mixes` of a product: a row of it reads one row of A, but all of B. */
bool matmul_mixes(const ir_node *node);

#endif
