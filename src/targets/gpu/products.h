/* Products with constant weights: the records of their kernels. */
#ifndef GQAC_TARGETS_GPU_PRODUCTS_H
#define GQAC_TARGETS_GPU_PRODUCTS_H

#include "targets/call.h"
#include "targets/gpu/gpu.h"

/* MatMul: x [.., K] times w [K,N]. */
typedef struct gpu_product {
    int x, y; /* values */
    gpu_kernel_id kernel;
    gpu_buffer weights;
    int32_t k, n;
} gpu_product;
gqac_status gpu_product_run(target_call *call, const void *record);

/* MatMulNBits: codes as words [blocks * block * bits / 32][N], lowest bits first; scales and zero
 * points as fp32, [blocks][N]. */
typedef struct gpu_nbits {
    int x, y; /* values */
    gpu_operand bias;
    gpu_buffer words, scales, zeros;
    int32_t k, n, bits, block, blocks;
    bool int8; /* activations are rounded to int8 */
} gpu_nbits;
gqac_status gpu_nbits_run(target_call *call, const void *record);

#endif
