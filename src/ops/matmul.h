/* The matmul of the numerics contract, shared by MatMul, Gemm and MatMulNBits. */
#ifndef GQAC_OPS_MATMUL_H
#define GQAC_OPS_MATMUL_H

#include "ops/shared.h"

enum {
    MATMUL_ROWS = 32,     /* rows of A in a unit of work */
    MATMUL_COLUMNS = 256, /* columns of B in a unit of work */
};

/* One product y[m][n] = sum over k of a[m][k] * b[k][n], m < rows, n < columns. The operands come
 * through functions that give a piece (k <= GQAC_K_PIECE) as fp32, either a pointer into the tensor
 * or `room` filled, with its leading dimension. */
typedef struct matmul_job matmul_job;
typedef const float *matmul_piece(const matmul_job *job, int64_t batch, int64_t first,
                                  int64_t count, int64_t k, int64_t n_k, float *room, int64_t *ld);
struct matmul_job {
    int64_t batches, rows, columns, depth;
    matmul_piece *a; /* [count rows][n_k], rows from `first` */
    matmul_piece *b; /* [n_k][count columns], columns from `first` */
    /* Takes `count` finished values of a row, columns from `column`. */
    void (*store)(const matmul_job *job, int64_t batch, int64_t row, int64_t column, int64_t count,
                  float *values);
    const void *arg;
};
/* Splits the job over the pool. NO_MEMORY when scratch is short. */
gqac_status matmul_run(op_call *call, const matmul_job *job);

#endif
