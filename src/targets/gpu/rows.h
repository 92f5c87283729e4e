/* Norms, copies and elementwise ops: the records of their kernels. */
#ifndef GQAC_TARGETS_GPU_ROWS_H
#define GQAC_TARGETS_GPU_ROWS_H

#include "targets/chain.h"
#include "targets/gpu/gpu.h"
#include "targets/norm.h"

/* All values are floats. */
typedef struct gpu_norm {
    target_norm of;
    gpu_operand weight, beta, bias;
} gpu_norm;
gqac_status gpu_norm_run(target_call *call, const void *record);

typedef struct gpu_take_rows {
    int x, rows, y;
} gpu_take_rows;
gqac_status gpu_take_rows_run(target_call *call, const void *record);

/* Rows of a constant, which is on the device. */
typedef struct gpu_gather {
    gpu_operand data;
    int indices, y;
} gpu_gather;
gqac_status gpu_gather_run(target_call *call, const void *record);

/* The same of a table of codes in blocks; scales are fp32 on the device. */
typedef struct gpu_gather_codes {
    gpu_operand data, scales, zeros;
    int indices, y;
    int32_t bits, block;
} gpu_gather_codes;
gqac_status gpu_gather_codes_run(target_call *call, const void *record);

/* Copies a box between float values of one type on the device. */
gqac_status gpu_copy_box(gpu_work *w, const op_box *box);

typedef struct gpu_unary {
    gpu_kernel_id kernel;
    int x, y;
    gqac_dtype dtype; /* of y */
    float alpha;
} gpu_unary;
gqac_status gpu_unary_run(target_call *call, const void *record);

/* With a gate: an activation of a, rounded to the type of y, times b. */
typedef struct gpu_binary {
    gpu_kernel_id kernel;
    gpu_operand a, b;
    int y;
    bool gate;
    float alpha; /* of the activation */
} gpu_binary;
gqac_status gpu_binary_run(target_call *call, const void *record);

/* Several elementwise ops. */
typedef struct gpu_chain {
    target_chain of;
    gpu_operand leaves[TARGET_CHAIN_LEAVES];
} gpu_chain;
gqac_status gpu_chain_run(target_call *call, const void *record);

#endif
