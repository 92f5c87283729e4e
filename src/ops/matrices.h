/* The matmul of the numerics contract on tensors, for evals and for kernels of targets. */
#ifndef GQAC_OPS_MATRICES_H
#define GQAC_OPS_MATRICES_H

#include "ops/work.h"

enum {
    MATMUL_ROWS = 32,     /* rows of A in a unit of work */
    MATMUL_COLUMNS = 256, /* columns of B in a unit of work */
};

/* One product y[m][n] = sum over k of a[m][k] * b[k][n], m < rows, n < columns. `a` and `b` return
 * pieces (k <= GQAC_K_PIECE) of the operands in fp32, with their leading dimension: pointers into
 * the tensor, or `scratch`, which they have filled. */
typedef struct matmul_job matmul_job;
typedef const float *matmul_piece(const matmul_job *job, int64_t batch, int64_t first,
                                  int64_t count, int64_t k, int64_t n_k, float *scratch,
                                  int64_t *ld);
struct matmul_job {
    int64_t batches, rows, columns, depth;
    matmul_piece *a; /* [count rows][n_k], rows from `first` */
    matmul_piece *b; /* [n_k][count columns], columns from `first` */
    /* Stores `count` finished values of a row, at the columns from `column` on. */
    void (*store)(const matmul_job *job, int64_t batch, int64_t row, int64_t column, int64_t count,
                  float *values);
    const void *arg;
};
/* Computes the product, split over the pool. NO_MEMORY: scratch could not be allocated. */
gqac_status matmul_do(const op_work *work, const matmul_job *job);
/* Adds the scratch of matmul_do to `parts`. */
void matmul_measure(int threads, gqac_parts *parts);

/* Inputs 0 and 1 as matrices: [batches..., M, K] x [batches..., K, N]. */
typedef struct matmul_shape {
    int64_t batches, m, n, k;
    int batch_rank;
    int64_t batch_dims[GQAC_MAX_RANK];
    int64_t a_step[GQAC_MAX_RANK], b_step[GQAC_MAX_RANK]; /* in matrices; 0 where broadcast */
} matmul_shape;
/* Checks the operands; also sets the shape of the result. */
gqac_status matmul_fit(const op_work *work, const gqac_tensor *a, const gqac_tensor *b,
                       matmul_shape *s, int *rank, int64_t *dims);
/* The matrix of an operand (given by its steps) for batch `batch` of the result. */
int64_t matmul_matrix(const matmul_shape *s, const int64_t *step, int64_t batch);
/* y = a b, of floats of one type. */
gqac_status matmul_floats(const op_work *work, const matmul_shape *s, const gqac_tensor *a,
                          const gqac_tensor *b, gqac_tensor *y);

#endif
