/* kv_append of the gpu target: a kernel writes new rows of floats to the blocks of the device, and
 * into one buffer with those of all slots of the run. At the end of the run that buffer is read,
 * and its rows are written to the blocks of the host, which so have every row of every sequence. */
#ifndef GQAC_TARGETS_GPU_APPEND_H
#define GQAC_TARGETS_GPU_APPEND_H

#include "targets/gpu/blocks.h"
#include "targets/gpu/gpu.h"
#include "targets/kv_rows.h"
#include "targets/mirror.h"

/* Rows of other types, and those that no kernel reads in blocks, are written by the host. */
typedef struct gpu_append_record {
    target_append_record of;
    int bits; /* of codes that are made of `fresh`; 0: rows are written as they are */
    bool per_channel;
    gpu_operand scale;
} gpu_append_record;
gqac_status gpu_append_run(target_call *call, const void *record);

/* The new rows of a run that the host lacks. A mirror has one, and counts in *copies. */
typedef struct gpu_new_rows gpu_new_rows;
gpu_new_rows *gpu_new_rows_open(gpu_state *state, target_copies *copies); /* NULL: no memory */
void gpu_new_rows_close(gpu_new_rows *rows);                              /* NULL is allowed */
void gpu_new_rows_forget(gpu_new_rows *rows);                             /* of a run that failed */
/* Writes all to the blocks of the host. */
gqac_status gpu_new_rows_flush(gpu_new_rows *rows, gqac_diag *diag);
/* Bytes of the device for so many new rows of each slot. */
size_t gpu_new_rows_bytes(const gpu_blocks *blocks, size_t n);

/* After place: the device gets all rows of a slot that it lacks. */
gqac_status gpu_bring_rows(gpu_work *w, const kv_batch *kv, int slot, const gpu_table *table);

#endif
