/* Heads of queries, keys and values in one launch: cut out of packed rows, normalised, rotated,
 * written to queries and to the blocks of the device. New rows reach the host by append.h. */
#ifndef GQAC_TARGETS_GPU_HEADS_H
#define GQAC_TARGETS_GPU_HEADS_H

#include "targets/gpu/gpu.h"
#include "targets/heads.h"

/* Operands of a stream that may be constants. */
typedef struct gpu_heads_operands {
    gpu_operand weight, cos, sin, scale; /* scale: of codes */
} gpu_heads_operands;

/* No stream is TARGET_IN_PLACE or TARGET_TO_PRESENT, and at most one has queries. */
typedef struct gpu_heads_record {
    target_streams of;
    gpu_heads_operands operands[TARGET_STREAMS];
} gpu_heads_record;
gqac_status gpu_heads_run(target_call *call, const void *record);

#endif
