/* Mixtures of experts of the gpu target (ops/moe.h has the formula). Routing, projections and sums
 * all run on the device; the host does not learn which experts a row has. */
#ifndef GQAC_TARGETS_GPU_MOE_H
#define GQAC_TARGETS_GPU_MOE_H

#include "ops/mixture.h"
#include "targets/gpu/gpu.h"

/* A projection of all experts, on the device: codes as words [experts][words][n], scales and zero
 * points [experts][blocks][n]; or floats [experts][k][n], in their type. bias [experts][n]. */
typedef struct gpu_projection {
    gpu_kernel_id kernel;
    gpu_buffer weights, scales, zeros, bias; /* without a handle: absent */
} gpu_projection;

typedef struct gpu_moe {
    moe_form form;
    int in[MOE_INPUTS], y; /* values; -1: absent */
    gpu_projection fc[3];
} gpu_moe;
gqac_status gpu_moe_run(target_call *call, const void *record);

/* Words of 32 bits that hold a row of codes. */
static inline int64_t gpu_moe_words(const moe_matrix *m) {
    return (m->weight->dims[2] + 3) / 4;
}

#endif
