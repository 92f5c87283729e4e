/* Kernels of linear_nbits, one set for each level. A call works on one panel of 64 columns and a
 * block of rows; ops/nbits.h describes the layout of weights, ops/matmul_nbits.c defines each
 * element: blocks (or k) ascending in pieces of GQAC_K_PIECE, pieces ascending. */
#ifndef GQAC_TARGETS_CPU_NBITS_H
#define GQAC_TARGETS_CPU_NBITS_H

#include "numerics/contract.h"
#include "ops/nbits.h"
#include "targets/cpu/products.h"

enum {
    CPU_NBITS_ROWS = 128, /* rows of a unit of work */
    CPU_NBITS_STEP = 64,  /* k that are converted to fp32 weights at once; divides GQAC_K_PIECE */
};

typedef struct cpu_nbits_weights {
    nbits_shape shape;
    const uint8_t *codes;
    const void *scales, *zeros; /* zeros NULL: 2^(bits-1) */
    gqac_dtype scale_type, zero_type;
} cpu_nbits_weights;

/* Rows as int8, quantised block by block: qa is stored piece by piece, each [rows][k of the piece],
 * with k padded to whole blocks with zeros; scales and sums of qa are [blocks][rows]. A sum is two
 * numbers: the sum of the qa with k % 4 < 2 in the low half, the sum of the others in the high
 * half. */
typedef struct cpu_nbits_rows {
    int64_t rows;
    int8_t *qa;
    float *scale;
    int32_t *sum;
} cpu_nbits_rows;

/* Scratch of a worker. */
typedef struct cpu_nbits_scratch {
    float y[CPU_NBITS_ROWS * NBITS_COLUMNS];
    float piece[CPU_NBITS_ROWS * NBITS_COLUMNS];
    union {
        float weights[CPU_NBITS_STEP * NBITS_COLUMNS];
        uint8_t bytes[2 * GQAC_K_PIECE * NBITS_COLUMNS]; /* codes of a piece, each in one or two
                                                            bytes */
    };
    float scales[GQAC_K_PIECE / NBITS_MIN_BLOCK * NBITS_COLUMNS];
    float zeros[GQAC_K_PIECE / NBITS_MIN_BLOCK * NBITS_COLUMNS];
    int32_t zero_codes[GQAC_K_PIECE / NBITS_MIN_BLOCK * NBITS_COLUMNS];
} cpu_nbits_scratch;

/* Products in fp32 of one x [rows,k] with n weights (at most CPU_PRODUCTS) of the same k and
 * blocks: y[i] [rows,n] (+ bias[i] [n], or NULL). */
gqac_status cpu_nbits_multiply(const op_work *work, const cpu_level *level, int n,
                               const cpu_nbits_weights *w, const gqac_tensor *const *bias,
                               const float *x, int64_t rows, float *const *y);
/* Adds the scratch that such a call needs to `parts`. */
void cpu_nbits_measure(const cpu_nbits_weights *w, int64_t rows, int threads, gqac_parts *parts);

typedef struct cpu_nbits_kernels {
    /* Quantises x [blocks * block] of row `row`, with zeros after k. */
    void (*quantise)(const nbits_shape *shape, const float *x, int64_t row, cpu_nbits_rows *to);
    /* scratch->y [count][64] = rows first .. first + count of a panel, before bias. */
    void (*int8)(const cpu_nbits_weights *w, int64_t panel, const cpu_nbits_rows *a, int64_t first,
                 int64_t count, cpu_nbits_scratch *scratch);
    /* The same in fp32; x is stored in steps of k, each [rows][CPU_NBITS_STEP]. */
    void (*fp32)(const cpu_nbits_weights *w, int64_t panel, const float *x, int64_t rows,
                 int64_t first, int64_t count, cpu_nbits_scratch *scratch);
    /* Replaces every NaN in y [count][64] by the canonical one, then adds bias [64] unless it is
     * NULL. */
    void (*finish)(float *y, int64_t count, const float *bias);
} cpu_nbits_kernels;

#endif
