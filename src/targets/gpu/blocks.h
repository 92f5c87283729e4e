/* KV blocks in the memory of a device: a cache of rows whose originals are the blocks of the host.
 *
 * An entry holds rows of one block of the host, for the slots that kernels read: of each slot the
 * first rows, up to a number that grows. New rows are written by a kernel (append.h) or uploaded;
 * before kernels read, the rows that are missing are uploaded, as all rows of a block that has
 * another version (kv_block_identity). Sequences may fork, rewind, fail and load without any call
 * to this file.
 *
 * Entries lie in slabs, [entries][slots][GQAC_KV_BLOCK][heads][size]; all heads of a row lie
 * together, so that new rows are one upload. Of sequences of quantised kinds the rows are codes, as
 * the host has them; after those of a slot come their scales, [GQAC_KV_BLOCK][heads]. A cache is
 * for codes of one width, or for rows. Slabs are added as long as the device has memory; then the
 * least recently used blocks are replaced.
 *
 * One thread at a time: that of gpu_take. */
#ifndef GQAC_TARGETS_GPU_BLOCKS_H
#define GQAC_TARGETS_GPU_BLOCKS_H

#include "targets/call.h"
#include "targets/gpu/driver.h"

enum { GPU_SLABS = 16 }; /* kernels that read blocks have an argument for each */

typedef struct gpu_blocks gpu_blocks;

gpu_blocks *gpu_blocks_open(const gpu_driver *driver, gpu_queue *queue); /* NULL: out of memory */
void gpu_blocks_close(gpu_blocks *blocks);                               /* NULL is allowed */

/* For bind: kernels read this slot; `row_bytes` of a row, all heads together, and `scale_bytes` of
 * its scales; 0: the rows have none. */
gqac_status gpu_blocks_add(gpu_blocks *blocks, int slot, size_t row_bytes, size_t scale_bytes,
                           gqac_diag *diag);

bool gpu_blocks_has_slot(const gpu_blocks *blocks, int slot); /* true if kernels read it */

/* Where the blocks of a step are: those of sequence b from at[b * per] on, as index * GPU_SLABS +
 * slab. */
typedef struct gpu_table {
    uint32_t *at;
    int64_t per; /* at least as many as a sequence has blocks */
} gpu_table;

/* Gives an entry to each block of the sequences, new rows included, and sets the table. `run`: a
 * number of the run, and so of its step, not 0. Later calls with the same number only copy the
 * table, until another run places its blocks or blocks are dropped. NO_MEMORY: the device cannot
 * hold the blocks of this step. */
gqac_status gpu_blocks_place(gpu_blocks *blocks, const kv_batch *kv, uint64_t run,
                             const gpu_table *table, gqac_diag *diag);
/* The next three are about the blocks that were placed last. */
/* Uploads the rows of a slot that are missing, those that the step adds included or not; the host
 * has them. */
gqac_status gpu_blocks_fill(gpu_blocks *blocks, const kv_batch *kv, int slot, bool with_new,
                            gqac_diag *diag);
/* False if the device lacks rows of a slot that the step adds. */
bool gpu_blocks_has_new(const gpu_blocks *blocks, int slot);
/* After a fill without the new rows of the slot: a kernel has written them. */
void gpu_blocks_written(gpu_blocks *blocks, int slot);

/* What a kernel reads, until the next place or drop. */
typedef struct gpu_slabs {
    void *handles[GPU_SLABS];   /* unused ones are those of slab 0 */
    int32_t entries[GPU_SLABS]; /* of each; at least 1 */
} gpu_slabs;
gpu_slabs gpu_blocks_slabs(const gpu_blocks *blocks);
size_t gpu_blocks_entry_bytes(const gpu_blocks *blocks);
/* Bytes of the slabs when the cache has grown block by block until it holds n. */
size_t gpu_blocks_bytes(const gpu_blocks *blocks, size_t n);
size_t gpu_blocks_offset(const gpu_blocks *blocks, int slot); /* bytes, within an entry */
/* The same for the scales of a slot; 0: it has none. */
size_t gpu_blocks_scales_at(const gpu_blocks *blocks, int slot);

/* Releases all memory of the device; false: there was none. */
bool gpu_blocks_drop(gpu_blocks *blocks);
uint64_t gpu_blocks_uploaded(const gpu_blocks *blocks); /* bytes of rows since it was opened */

#endif
