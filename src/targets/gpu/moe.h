/* Mixtures of experts of the gpu target (ops/moe.h has the formula). Routing, projections and sums
 * all run on the device; the host does not learn which experts a row has. */
#ifndef GQAC_TARGETS_GPU_MOE_H
#define GQAC_TARGETS_GPU_MOE_H

#include "ops/mixture.h"
#include "targets/gpu/products.h"

/* A projection of all experts: weights of each as in a product, one after another (products.h);
 * bias [experts][n]. */
typedef struct gpu_projection {
    gpu_weights weights;
    int32_t rows;    /* of an expert's weights */
    gpu_buffer bias; /* without a handle: absent */
} gpu_projection;

typedef struct gpu_moe {
    moe_form form;
    int in[MOE_INPUTS], y; /* values; -1: absent */
    gpu_projection fc[3];
} gpu_moe;
gqac_status gpu_moe_run(target_call *call, const void *record);

#endif
