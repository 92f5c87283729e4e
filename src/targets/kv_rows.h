/* Kernels of kv_state and kv_append that gather the blocks of a sequence into plain rows [n,H,T,D]
 * where these are read, for targets without kernels of their own for them. */
#ifndef GQAC_TARGETS_KV_ROWS_H
#define GQAC_TARGETS_KV_ROWS_H

#include "targets/call.h"

typedef struct target_state_record {
    int token; /* value */
} target_state_record;
gqac_status target_kv_state_run(target_call *call, const void *record);

typedef struct target_append_record {
    int slot, fresh, token, rows; /* fresh: operand `new`; token and rows: results */
    bool only_blocks;             /* the rows are read from blocks: they get a shape and no data */
} target_append_record;
gqac_status target_kv_append_run(target_call *call, const void *record);

/* Checks the new rows [B,H,S,D] of a kv_append against the slot and the step. INTERNAL: outside a
 * step. */
gqac_status target_kv_fit(const target_call *call, const op_work *work, const gqac_tensor *rows,
                          int slot);
/* The row of [B,H,S,D] with which the new rows of sequence b begin. */
int64_t target_kv_begin(const kv_batch *kv, int64_t b);
/* Writes the new rows of a step [B,H,S,D] to the blocks of a slot. */
void target_kv_write(const kv_batch *kv, const gqac_tensor *rows, int slot);
/* The largest past + new of the batch: the number of rows of a gathered tensor. */
int64_t target_kv_total_rows(const kv_batch *kv);
/* Sets an effect token, if it is used. */
void target_give_token(target_call *call, int value);

#endif
