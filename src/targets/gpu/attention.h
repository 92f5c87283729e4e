/* Attention of the gpu target: the record of its kernels. */
#ifndef GQAC_TARGETS_GPU_ATTENTION_H
#define GQAC_TARGETS_GPU_ATTENTION_H

#include "targets/call.h"
#include "targets/gpu/attend_units.h"
#include "targets/gpu/gpu.h"

typedef struct gpu_attention {
    int q, k, v, past_len, new_len, y; /* values; -1: absent */
    gpu_operand bias, sink;
    bool in_blocks; /* keys and values are read in KV blocks: of these slots, by this kernel */
    int k_slot, v_slot;
    gpu_rows_type type;
    int64_t size, value_size;     /* D, Dv */
    gpu_operand k_scale, v_scale; /* of codes */
    bool per_channel;
    gpu_kernel *kernels[GPU_OWN]; /* by gpu_tiles; those of rows, not of codes of the cache */
    int64_t many_rows;            /* rows of a tile of many rows */
    bool tensor;                  /* kernels/attend_tensor.cl computes all rows */
    bool causal;
    int64_t window;
    float scale, softcap;
} gpu_attention;
/* True if heads of these sizes are multiplied in tensor cores, where there are some. */
bool gpu_attention_fits_tensor(const gpu_attention *r);
/* Rows of a tile of many rows, by the sizes of heads. */
int64_t gpu_attention_rows(const gpu_attention *r);
/* The kernels for heads of these sizes and for rows or codes of that type, which are compiled if
 * there are none yet. For bind, and between gpu_take and gpu_give_back. */
gqac_status gpu_attention_kernels(const void *state, const gpu_attention *r, gpu_rows_type type,
                                  gpu_kernel *kernels[GPU_OWN], gqac_diag *diag);
gqac_status gpu_attention_run(target_call *call, const void *record);

#endif
