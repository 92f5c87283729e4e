/* New rows of keys and values: a kernel (heads.h) writes them to the blocks of the device, and into
 * one buffer with those of all slots of the run. At the end of the run that buffer is read, and its
 * rows are written to the blocks of the host, so that these have every row of every sequence. */
#ifndef GQAC_TARGETS_GPU_APPEND_H
#define GQAC_TARGETS_GPU_APPEND_H

#include "targets/gpu/blocks.h"
#include "targets/gpu/gpu.h"
#include "targets/kv_rows.h"
#include "targets/mirror.h"

/* kv_append of rows that the host writes: those of types that no kernel makes, and those that nodes
 * other than attention read. The record is a target_append_record. */
gqac_status gpu_append_run(target_call *call, const void *record);

/* The new rows of a run that the host lacks. A mirror has one, and counts in *copies. */
typedef struct gpu_new_rows gpu_new_rows;
gpu_new_rows *gpu_new_rows_open(gpu_state *state, target_copies *copies); /* NULL: no memory */
void gpu_new_rows_close(gpu_new_rows *rows);                              /* NULL is allowed */
void gpu_new_rows_forget(gpu_new_rows *rows);                             /* of a run that failed */
/* Memory for the new rows of n slots: slots[i].rows, whose type and shape are set, begin in *buffer
 * at slots[i].at: the rows, or their codes and then their scales [B,H,S]. If the buffer has too
 * little room, the rows in it are written to the host first. The kernel that writes them is
 * launched next. */
typedef struct gpu_new {
    gqac_tensor rows; /* [B,H,S,D]; no data */
    int slot;
    int bits;             /* of the codes that a quantised kind keeps; 0: it keeps the rows */
    size_t at, scales_at; /* scales_at: set if there are codes */
} gpu_new;
gqac_status gpu_new_rows_take(gpu_work *w, const kv_batch *kv, int n, gpu_new *slots,
                              gpu_buffer *buffer);
/* Memory for n likeliest ids, each its logit and then the id in 32 bits, from byte *at of *buffer
 * on, a multiple of 4; gpu_new_rows_fetch sets ids[0..n). The kernel that writes them is launched
 * next. */
gqac_status gpu_new_rows_take_top(gpu_work *w, size_t n, gqac_candidate *ids, gpu_buffer *buffer,
                                  int64_t *at);
/* Copies all rows from the device, and sets the likeliest ids. */
gqac_status gpu_new_rows_fetch(gpu_new_rows *rows, gqac_diag *diag);
/* After that: writes the rows to the blocks of the host, on the threads of `work`, which may need
 * the device: the lock of the state is not held. If the call is stopped, some are left out; then
 * the step fails. */
void gpu_new_rows_write(gpu_new_rows *rows, const op_work *work);
/* Bytes of the device for n new rows of each slot. */
size_t gpu_new_rows_bytes(const gpu_blocks *blocks, size_t n);

/* The blocks of the kind of a step's sequences. */
gpu_blocks *gpu_blocks_of(const void *state, const kv_batch *kv);
/* gpu_blocks_place for these. If the device has no memory for them, the blocks of other kinds give
 * theirs back. */
gqac_status gpu_place(gpu_work *w, const kv_batch *kv, const gpu_table *table);
/* After place: the device gets all rows of a slot that it lacks. */
gqac_status gpu_bring_rows(gpu_work *w, const kv_batch *kv, int slot);

#endif
