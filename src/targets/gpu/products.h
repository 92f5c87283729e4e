/* Products with constant weights: the records of their kernels. */
#ifndef GQAC_TARGETS_GPU_PRODUCTS_H
#define GQAC_TARGETS_GPU_PRODUCTS_H

#include "targets/call.h"
#include "targets/gpu/gpu.h"

/* Weights [K,N] on the device, as kernels/weights.cl has them. */
typedef struct gpu_weights {
    gpu_kernel_id kernel; /* the first of GPU_FORMS */
    gpu_buffer data;
    gpu_buffer scales, zeros; /* of codes: fp32 [blocks][width]; zeros may be one row for all */
    int32_t k, n, width;
    int32_t bits, block, blocks, zero_step;
} gpu_weights;

/* Number of columns of weights, padded to fill lines of a cache. */
static inline int32_t gpu_weights_width(int32_t n) {
    return (n + 7) / 8 * 8;
}

/* Parts of n, of which the last may be smaller. */
static inline size_t gpu_parts(int64_t n, int64_t size) {
    return (size_t)((n + size - 1) / size);
}

enum { GPU_CHUNK = 16 };       /* bytes that a kernel reads of a column together */
enum { GPU_FEW_COLUMNS = 32 }; /* of a group that computes few rows */
enum { GPU_FEW_ONE_TEAMS = 16, GPU_FEW_TEAMS = 8 }; /* at most, of one row and of more */

/* product_shape of kernels/weights.cl. */
typedef struct gpu_product_shape {
    int32_t m, k, n, width, shift, blocks, zero_step, teams, columns;
    int32_t split, from, has_bias, from_zero, y_type;
} gpu_product_shape;

/* The shape of m rows with that many pieces of k, which the teams of a group share about
 * equally. */
static inline gpu_product_shape gpu_product_shape_of(const gpu_weights *w, int32_t m,
                                                     int32_t pieces) {
    const int32_t most = m == 1 ? GPU_FEW_ONE_TEAMS : GPU_FEW_TEAMS;
    const int32_t rounds = (pieces + most - 1) / most;
    int32_t shift = 0;
    while (1 << shift < w->block) /* only the one block of a row can have another size */
        shift++;
    return (gpu_product_shape){.m = m,
                               .k = w->k,
                               .n = w->n,
                               .width = w->width,
                               .shift = shift,
                               .blocks = w->blocks,
                               .zero_step = w->zero_step,
                               .teams = (pieces + rounds - 1) / rounds};
}

/* x [.., K] times weights, plus a bias: MatMul, MatMulNBits. */
typedef struct gpu_product {
    int x, y; /* values */
    gpu_operand bias;
    gpu_weights weights;
    bool int8;                 /* activations are rounded to int8 */
    bool as_is;                /* the kernels read x in its own type, and not in fp32 */
    gpu_kernel *const *tensor; /* of gpu_tensor_kernels; NULL: the product is computed in fp32 */
    gpu_tensor_id forms;       /* those of `tensor` for the weights: factors, or codes */
} gpu_product;
gqac_status gpu_product_run(target_call *call, const void *record);

/* y = the sum of parts [pieces][m][n], plus a bias. */
gqac_status gpu_add_pieces(gpu_work *w, const gpu_product_shape *shape, int32_t pieces,
                           const gpu_buffer *parts, const gpu_buffer *bias, const gpu_buffer *y);

#endif
