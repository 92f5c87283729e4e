/* Products of bf16 factors in tensor cores: kernels/tensor.cl, for --math bf16 on CUDA. */
#ifndef GQAC_TARGETS_GPU_TENSOR_H
#define GQAC_TARGETS_GPU_TENSOR_H

#include "targets/gpu/products.h"

enum {
    /* constants of the kernels */
    GPU_TENSOR_K = 32,    /* k of a block */
    GPU_TENSOR_WARPS = 8, /* of a group that computes few rows, at most, or one row */
    GPU_TENSOR_ONE_WARPS = 16,
    GPU_TENSOR_ROWS = 16,    /* of a block; of few rows, at most */
    GPU_TENSOR_TILE = 128,   /* rows, and columns */
    GPU_TENSOR_ITEMS = 256,  /* of a tile */
    GPU_TENSOR_PACKERS = 128 /* items of a group that makes factors */
};

/* How a group of few rows is cut: teams, which have pieces of k, by the blocks of columns that each
 * team has. */
typedef struct gpu_tensor_cut {
    int32_t teams, wide;
} gpu_tensor_cut;

/* For that many pieces and blocks of columns, and at most that many warps: as few rounds as
 * possible, with as few teams as these allow, and about eight warps, but a group for each
 * multiprocessor of a large device. */
static inline gpu_tensor_cut gpu_tensor_cut_of(int32_t pieces, int32_t blocks, int32_t warps) {
    enum { GROUPS = 128 };
    const int32_t rounds = (pieces + warps - 1) / warps;
    gpu_tensor_cut cut = {.teams = (pieces + rounds - 1) / rounds, .wide = 1};
    while (2 * cut.wide * cut.teams <= 8 && blocks / (2 * cut.wide) >= GROUPS)
        cut.wide *= 2;
    return cut;
}

/* Blocks of k. */
static inline int32_t gpu_tensor_blocks(int32_t k) {
    return (k + GPU_TENSOR_K - 1) / GPU_TENSOR_K;
}

/* The grid of a kernel that makes factors: an item for 16 bytes of weights, or 32 of rows; `down`
 * blocks of columns or of rows. */
static inline gpu_grid gpu_tensor_packers(const gpu_product_shape *s, size_t down) {
    return (gpu_grid){
        .groups = {gpu_parts((int64_t)gpu_tensor_blocks(s->k) * 32, GPU_TENSOR_PACKERS), down},
        .items = {GPU_TENSOR_PACKERS, 1}};
}

/* What a product reads and writes. */
typedef struct gpu_tensor_rows {
    gpu_buffer in, bias, out;
    int32_t x_type, pieces;
} gpu_tensor_rows;
gqac_status gpu_tensor_product(gpu_work *w, const gpu_product *p, const gpu_product_shape *shape,
                               const gpu_tensor_rows *rows);

#endif
