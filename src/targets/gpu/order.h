/* Softmax, ArgMax, ArgMin and TopK along one axis: the records of their kernels; and the likeliest
 * ids of logits. */
#ifndef GQAC_TARGETS_GPU_ORDER_H
#define GQAC_TARGETS_GPU_ORDER_H

#include "targets/gpu/append.h"
#include "targets/gpu/gpu.h"

typedef struct gpu_softmax {
    int x, y; /* values */
    int64_t axis;
} gpu_softmax;
gqac_status gpu_softmax_run(target_call *call, const void *record);

/* Indices are i64, on the host. */
typedef struct gpu_arg_search {
    int x, y;
    int64_t axis;
    bool least, keep, last;
} gpu_arg_search;
gqac_status gpu_arg_run(target_call *call, const void *record);

typedef struct gpu_top {
    int x, k, values, indices;
    int64_t axis;
    bool least;
} gpu_top;
gqac_status gpu_top_run(target_call *call, const void *record);

/* target_mirror.top: a kernel writes the ids where new rows are. */
gqac_status gpu_top_ids(gpu_work *w, const gqac_tensor *logits, int64_t n, gqac_candidate *ids);

#endif
